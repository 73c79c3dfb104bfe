"""How often a runner pushes: seldom while nothing happens, at once when something does, within the budget when busy."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import pytest

from bridge.bus import names
from bridge.bus.pacing import Pacer
from bridge.bus.refbus import RefBus
from bridge.bus.store import RefUpdate
from bridge.client.liveness import look
from bridge.limits import (
    BEACON_CHAIN_COUNT,
    BEACON_INTERVAL_HOSTED_S,
    BEACON_INTERVAL_IDLE_S,
    LEASE_HOSTED_S,
    PUSHES_PER_MINUTE_HOSTED,
)
from bridge.runner.keeper import Keeper
from bridge.runner.link import link_to
from bridge.runner.loop import Runner
from bridge.system.gitobjects import parse_commit
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryRemote, MemoryStore, bus_record

DAY_S = 24 * 3600.0
HOSTED = {"lease_s": LEASE_HOSTED_S, "beacon_interval_s": BEACON_INTERVAL_HOSTED_S}


@pytest.fixture
def clock():
    return FakeClock()


class CountingStore(MemoryStore):
    """Notes when every push was made and which refs it moved."""

    def __init__(self, remote: MemoryRemote, clock: FakeClock) -> None:
        super().__init__(remote)
        self.clock = clock
        self.pushes: list[tuple[float, tuple[str, ...]]] = []

    def push(self, updates: Sequence[RefUpdate]):
        self.pushes.append((self.clock.steady_s(), tuple(one.ref for one in updates)))
        return super().push(updates)


def hosted(clock: FakeClock, tmp_path, **record: object) -> tuple[CountingStore, RefBus]:
    store = CountingStore(MemoryRemote(), clock)
    pacer = Pacer(tmp_path / "pushes.json", PUSHES_PER_MINUTE_HOSTED, clock)
    bus = RefBus(store, clock=clock, pacer=pacer)
    bus.create(bus_record(clock, **record))
    return store, bus


def idle(runner: Runner, clock: FakeClock, seconds: float, step_s: float = 5.0) -> None:
    for _ in range(int(seconds / step_s)):
        runner.step()
        clock.advance(step_s)


def most_in_a_minute(moments: list[float]) -> int:
    return max((sum(first <= one < first + 60.0 for one in moments) for first in moments), default=0)


@pytest.mark.parametrize("record", [{}, HOSTED], ids=["local", "hosted"])
def test_an_idle_day_costs_a_few_hundred_pushes_and_a_bounded_history(world, clock, tmp_path, record):
    w = world()
    store, bus = hosted(clock, tmp_path, **record)
    runner = Runner(w.host, link_to(bus, clock))
    before = len(store.pushes)
    idle(runner, clock, DAY_S)
    pushed = store.pushes[before:]
    assert {refs for _, refs in pushed} == {(names.beacon_ref(names.DEFAULT_PREFIX, "mini"),)}
    assert DAY_S / BEACON_INTERVAL_IDLE_S <= len(pushed) <= DAY_S / BEACON_INTERVAL_IDLE_S + 10
    assert chain_length(store, pushed[-1][1][0]) <= BEACON_CHAIN_COUNT


def chain_length(store: MemoryStore, ref: str) -> int:
    at: str | None = store.remote.refs[ref]
    for count in itertools.count():
        if at is None:
            return count
        parents = parse_commit(store.remote.objects[at].data).parents
        at = parents[0] if parents else None
    raise AssertionError


def test_an_idle_runner_is_live_all_the_time_and_gone_some_time_after_its_last_word(world, clock, tmp_path):
    w = world()
    _, bus = hosted(clock, tmp_path)
    runner = Runner(w.host, link_to(bus, clock))
    for _ in range(400):
        idle(runner, clock, 30.0)
        (seen,) = look(bus, bus.identity(), clock.now())
        assert seen.live
    assert seen.beacon.interval_s == BEACON_INTERVAL_IDLE_S
    clock.advance(3 * BEACON_INTERVAL_IDLE_S + 121)
    assert not look(bus, bus.identity(), clock.now())[0].live


def test_what_a_requester_would_want_to_know_is_told_at_once(world, clock, tmp_path):
    w = world()
    _, bus = hosted(clock, tmp_path)
    runner = Runner(w.host, link_to(bus, clock))
    idle(runner, clock, 3600.0)
    for change, state in (
        (w.host.state.pause.touch, "paused"),
        (w.host.state.pause.unlink, "idle"),
        (w.host.state.drain.touch, "draining"),
    ):
        change()
        runner.step()
        assert bus.read_beacons()[0][1].state == state
        assert bus.read_beacons()[0][1].interval_s == bus.identity().beacon_interval_s
        clock.advance(60.0 / PUSHES_PER_MINUTE_HOSTED)
    w.host.state.drain.unlink()
    runner.farewell()
    (seen,) = look(bus, bus.identity(), clock.now())
    assert (seen.beacon.state, seen.live) == ("stopped", False)


def test_a_beacon_that_could_not_be_sent_is_sent_as_soon_as_it_can(world, clock):
    w = world()
    runner = w.runner()
    runner.step()
    clock.advance(1.0)
    w.faults.decide = lambda operation: "lost" if operation == "push" else None
    w.host.state.pause.touch()
    runner.step()
    w.faults.decide = lambda operation: None
    assert w.requester.read_beacons()[0][1].state == "idle"
    clock.advance(30.0)
    runner.step()
    assert w.requester.read_beacons()[0][1].state == "paused"


def test_a_busy_runner_stays_within_the_budget_with_log_lease_and_beacon_in_one_push(world, clock, tmp_path):
    w = world()
    store, bus = hosted(clock, tmp_path, **HOSTED)
    link = link_to(bus, clock)
    runner = Runner(w.host, link)
    actor = Actor(bus, clock, "mini")
    sent = actor.submit()
    held = bus.claim(actor.record(sent.ref, "claimed", 0, lease_s=LEASE_HOSTED_S))
    held = bus.advance(held, actor.record(sent.ref, "started", 1, lease_s=LEASE_HOSTED_S, phase="running"))
    clock.advance(120.0)
    keeper = Keeper(link, held, clock=clock, beacon=runner._beacons.due, asked_s=clock.steady_s())
    before = len(store.pushes)
    keeper.start()
    wait = threading.Event()
    for second in range(600):
        keeper.feed(f"line {second}\n".encode())
        clock.advance(1.0)
        wait.wait(0.004)
    keeper.stop()
    pushed = store.pushes[before:]
    assert len(pushed) >= 4
    assert most_in_a_minute([moment for moment, _ in pushed]) <= PUSHES_PER_MINUTE_HOSTED
    kinds = [{ref.split("/")[2] for ref in refs} for _, refs in pushed]
    assert {"claim", "log", "runner"} in kinds
    assert all("claim" in kind for kind in kinds)
    assert keeper.lost() is None
