"""Large archives: a day in parts, and what a reader refuses."""

from __future__ import annotations

from bridge.bus.store.gather import WorkBudget
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus

DAY_S = 24 * 3600.0


def test_a_day_of_many_runs_is_folded_in_parts_of_a_bounded_size() -> None:
    clock = FakeClock()
    host = Actor(MemoryBus(clock=clock), clock)
    refs = [host.submit().ref for _ in range(260)]
    for ref in refs:
        host.run(ref)
    clock.advance(3 * DAY_S)
    done = list(host.bus.archive(host.name, budget=WorkBudget(100), drop_after_s=2 * DAY_S))
    assert done[:2] == ["refs/kakeya/archive/mini/2026-01-02"] * 2
    assert len(done) == 2 + 3 * len(refs)  # branch, start and claim
    reader = MemoryBus(host.bus.remote, clock=clock)
    assert [archived.tip.claim.id for archived in reader.archived()] == sorted((ref.id for ref in refs), reverse=True)
