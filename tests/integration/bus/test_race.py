"""Many runners, one request, a real server in between: one winner, every time."""

from __future__ import annotations

import threading

import pytest

from bridge.errors import FencedError
from tests.integration.bus.conftest import Line

pytestmark = [pytest.mark.servers, pytest.mark.slow]
RUNNERS, ROUNDS = 16, 100


@pytest.mark.timeout(1800)
def test_sixteen_runners_and_a_hundred_claims_over_http(line: Line) -> None:
    client = line.direct("client")
    runners = [line.through(f"host-{number}") for number in range(RUNNERS)]
    for runner in runners:
        runner.bus.identity()
    for _ in range(ROUNDS):
        sent = client.submit()
        gate = threading.Barrier(RUNNERS)
        ends: dict[str, str] = {}

        def race(number: int, gate: threading.Barrier = gate, ends: dict[str, str] = ends, ref=sent.ref) -> None:
            gate.wait()
            try:
                ends[runners[number].claim(ref).claim.runner] = "won"
            except FencedError:
                ends[runners[number].name] = "fenced"

        threads = [threading.Thread(target=race, args=(number,)) for number in range(RUNNERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        view = client.bus.read_claim(sent.ref.id)
        assert view is not None
        assert len(ends) == RUNNERS
        assert [name for name, end in ends.items() if end == "won"] == [view.claim.runner]
