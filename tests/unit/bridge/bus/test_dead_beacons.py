"""Collecting: the beacon of a runner that is silent for a month goes, others stay."""

from __future__ import annotations

from bridge.limits import BEACON_DEAD_S
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
