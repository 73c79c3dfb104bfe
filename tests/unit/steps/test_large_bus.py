"""A bus that is too large to be listed whole at each poll: what is old and has not ended is not forgotten."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.bus.views import RequestRef
from bridge.limits import LISTING_DAYS_EVERY_S, LISTING_SMALL_BYTES
from tests.fakes.asking import make_request, push
from tests.fakes.memory_bus import BUS_ID
from tests.steps.bus import ended_run
from tests.steps.world import SteppedWorld

RUN_S, LEASE_S = 200.0, 60.0
OLD = dt.timedelta(minutes=40)  # a listing of the last minutes does not go back so far
ENDED = 120


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SteppedWorld]:
    made = SteppedWorld(tmp_path, seed=1, run_s=RUN_S, hosted=True, record={"lease_s": LEASE_S})
    for _ in range(ENDED):
        ended_run(made.remote, made.clock)
    made.clock.run_for(2 * OLD.total_seconds())
    assert made.client.snapshot().bytes_received > LISTING_SMALL_BYTES
    yield made
    made.close()


def ask_late(world: SteppedWorld) -> RequestRef:
    """Push a request that was made long ago."""
    return push(world.client, make_request(BUS_ID, "mlx-env-probe", now=world.clock.now() - OLD))


def test_a_run_whose_runner_dies_and_a_request_that_waits_meanwhile_come_to_their_end(world: SteppedWorld) -> None:
    refs = [ask_late(world) for _ in range(3)]
    began_s = world.clock.steady_s()
    first, other = (world.serve(world.runner(name)) for name in ("mini", "other"))
    world.clock.run_for(120.0)
    assert len(world.times_executed()) == 2
    (lost,) = (spec.id for spec in first.executor.executed)
    first.process.kill()
    assert world.clock.run_until(lambda: world.ended(lost), began_s + LISTING_DAYS_EVERY_S), other.log_lines
    limit_s = world.clock.steady_s() + 2 * RUN_S + LISTING_DAYS_EVERY_S
    assert world.clock.run_until(lambda: all(world.ended(ref.id) for ref in refs), limit_s), other.log_lines
    assert world.times_executed() == {ref.id: 1 for ref in refs}
    assert [ref.id for ref in refs if world.view(ref.id).claim.claim.reason == "runner_lost"] == [lost]


def test_a_request_that_took_long_to_arrive_is_found_with_the_last_days(world: SteppedWorld) -> None:
    mini = world.serve(world.runner())
    world.clock.run_for(LISTING_DAYS_EVERY_S)
    ref = ask_late(world)
    limit_s = world.clock.steady_s() + LISTING_DAYS_EVERY_S + 60.0
    assert world.clock.run_until(lambda: world.view(ref.id).claim is not None, limit_s), mini.log_lines
