"""Beacons that are not there any more: collected after a month of silence, or moved on since they were listed."""

from __future__ import annotations

from bridge.limits import BEACON_DEAD_S
from bridge.system.gitobjects import parse_commit
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.scripted_host import ScriptedHost


def test_a_beacon_of_a_runner_that_is_silent_for_a_month_is_collected():
    clock = FakeClock()
    bus = MemoryBus(clock=clock)
    ScriptedHost(bus, clock, "gone").beat()
    clock.advance(BEACON_DEAD_S + 1)
    ScriptedHost(bus, clock, "here").beat()
    assert list(bus.collect(older_than_s=0.0, dry_run=True)) == ["refs/kakeya/runner/gone"]
    assert list(bus.collect(older_than_s=0.0, dry_run=False)) == ["refs/kakeya/runner/gone"]
    assert [beacon.runner for _, beacon in bus.read_beacons()] == ["here"]
    assert list(bus.collect(older_than_s=0.0, dry_run=False)) == []


def test_a_beacon_that_moved_on_since_the_bus_was_opened_is_listed_again_where_the_old_one_is_not_given():
    clock = FakeClock()
    bus = MemoryBus(clock=clock)
    host = ScriptedHost(bus, clock, "here")
    host.beat()
    reader = MemoryBus(bus.remote, clock=clock)
    reader.identity()
    host.beat()
    newest = bus.remote.refs["refs/kakeya/runner/here"]
    del bus.remote.objects[parse_commit(bus.remote.objects[newest].data).parents[0]]  # v0 gives only tips

    (entry,) = reader.read_beacons(as_opened=True)
    assert entry[0] == newest
