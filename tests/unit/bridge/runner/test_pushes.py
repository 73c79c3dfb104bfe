"""How often a runner pushes: seldom while nothing happens, at once when something does, within the budget when busy."""

from __future__ import annotations

import itertools

import pytest

from bridge.bus.refs import names
from bridge.client.connection.liveness import look
from bridge.limits import (
    BEACON_CHAIN_COUNT,
    BEACON_INTERVAL_IDLE_S,
    PUSHES_PER_MINUTE_HOSTED,
)
from bridge.runner.connection.link import link_to
from bridge.system.gitobjects import parse_commit
from tests.fakes.bus_actors import FakeClock
from tests.fakes.counted_pushes import DAY_S, HOSTED, busy, hosted, idle, most_in_a_minute
from tests.fakes.memory_bus import MemoryStore


@pytest.fixture
def clock():
    return FakeClock()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        pytest.param({}, DAY_S, marks=pytest.mark.slow, id="local"),
        pytest.param(HOSTED, DAY_S, marks=pytest.mark.slow, id="hosted"),
        pytest.param(HOSTED, DAY_S / 6, id="hosted, four hours"),
    ],
)
def test_an_idle_day_costs_a_few_hundred_pushes_and_a_bounded_history(world, clock, tmp_path, record, seconds):
    w = world()
    store, bus = hosted(clock, tmp_path, **record)
    runner = w.process.on(link_to(bus, clock))
    before = len(store.pushes)
    idle(runner, clock, seconds)
    pushed = store.pushes[before:]
    assert {refs for _, refs in pushed} == {(names.beacon_ref(names.DEFAULT_PREFIX, "mini"),)}
    assert seconds / BEACON_INTERVAL_IDLE_S <= len(pushed) <= seconds / BEACON_INTERVAL_IDLE_S + 10
    assert chain_length(store, pushed[-1][1][0]) <= BEACON_CHAIN_COUNT


def chain_length(store: MemoryStore, ref: str) -> int:
    at: str | None = store.remote.refs[ref]
    for count in itertools.count():
        if at is None:
            return count
        parents = parse_commit(store.remote.objects[at].data).parents
        at = parents[0] if parents else None
    raise AssertionError


@pytest.mark.ci
def test_an_idle_runner_is_live_all_the_time_and_gone_some_time_after_its_last_word(world, clock, tmp_path):
    w = world()
    _, bus = hosted(clock, tmp_path)
    runner = w.process.on(link_to(bus, clock))
    for _ in range(400):
        idle(runner, clock, 30.0)
        (view,) = look(bus, bus.identity(), clock.now())
        assert view.live
    assert view.beacon.interval_s == BEACON_INTERVAL_IDLE_S
    clock.advance(3 * BEACON_INTERVAL_IDLE_S + 121)
    assert not look(bus, bus.identity(), clock.now())[0].live


def test_what_a_requester_would_want_to_know_is_told_at_once(world, clock, tmp_path):
    w = world()
    _, bus = hosted(clock, tmp_path)
    runner = w.process.on(link_to(bus, clock))
    idle(runner, clock, 3600.0)
    for change, state in (
        (w.process.folder.pause.touch, "paused"),
        (w.process.folder.pause.unlink, "idle"),
        (w.process.folder.drain.touch, "draining"),
    ):
        change()
        runner.step()
        assert bus.read_beacons()[0][1].state == state
        assert bus.read_beacons()[0][1].interval_s == bus.identity().beacon_interval_s
        clock.advance(60.0 / PUSHES_PER_MINUTE_HOSTED)
    w.process.folder.drain.unlink()
    runner.announce_end()
    (view,) = look(bus, bus.identity(), clock.now())
    assert (view.beacon.state, view.live) == ("stopped", False)


def test_a_beacon_that_could_not_be_sent_is_sent_as_soon_as_it_can(world, clock):
    w = world()
    runner = w.runner()
    runner.step()
    clock.advance(1.0)
    w.faults.decide = lambda operation: "lost" if operation == "push" else None
    w.process.folder.pause.touch()
    runner.step()
    w.faults.decide = lambda operation: None
    assert w.requester.read_beacons()[0][1].state == "idle"
    clock.advance(30.0)
    runner.step()
    assert w.requester.read_beacons()[0][1].state == "paused"


def test_a_busy_runner_stays_within_the_budget_with_log_lease_and_beacon_in_one_push(world, clock, tmp_path):
    done = busy(world().process, clock, tmp_path, 600)

    assert len(done.pushed) == len(done.turns) >= 4
    assert most_in_a_minute(done.turns) <= PUSHES_PER_MINUTE_HOSTED
    kinds = [{ref.split("/")[2] for ref in refs} for refs in done.pushed]
    assert {"claim", "log", "runner"} in kinds
    assert all("claim" in kind for kind in kinds)
    assert done.renewal.lost() is None
