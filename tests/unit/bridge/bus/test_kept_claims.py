"""A claim is a runner's own only when the remote keeps it."""

from __future__ import annotations

import pytest

from bridge.errors import FencedError
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import Faults, MemoryBus, MemoryRemote, bus_record


def test_a_claim_that_the_remote_acknowledged_and_did_not_keep_is_nobodys() -> None:
    clock, remote, faults = FakeClock(), MemoryRemote(), Faults()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    runner = Actor(MemoryBus(remote, clock=clock, faults=faults), clock, "a")
    runner.submit()
    (ref,) = runner.bus.snapshot().requests
    faults.decide = lambda operation: "forgotten" if operation == "push" else None
    with pytest.raises(FencedError, match="already claimed"):
        runner.claim(ref)
    faults.decide = lambda operation: None
    assert runner.claim(ref).claim.runner == "a"
