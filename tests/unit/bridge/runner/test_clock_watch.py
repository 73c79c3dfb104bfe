"""A wall clock that is wrong by what others sign: nothing is taken, and in doubt nothing ends as expired."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass

import pytest

from bridge.bus.refs import names
from bridge.limits import ARCHIVE_FIRST_S
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.link import link_to
from bridge.runner.state.attestations import enrolled
from bridge.trust import runner_key as keys
from bridge.trust.keyring import pin
from tests.fakes.bus_actors import Actor
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.requester import StepClock

HOURS = dt.timedelta(hours=3)


@dataclass
class WrongClock:
    """Another machine's clocks: the same seconds, another time of day."""

    true: StepClock
    by: dt.timedelta

    def now(self) -> dt.datetime:
        return self.true.now() + self.by

    def steady_s(self) -> float:
        return self.true.steady_s()

    def sleep(self, seconds: float) -> None:
        self.true.sleep(seconds)


@pytest.fixture
def clock():
    return StepClock()


@pytest.fixture
def fleet(world, tmp_path, clock):
    """Return a function that starts a runner, by the other names as its pins, whose clock is wrong by a time."""
    w = world()
    for name in ("mini", "a", "b"):
        keys.generate(tmp_path / name, name)

    def start(by: dt.timedelta):
        w.clock = WrongClock(clock, by)
        process = w.new_process("state", identity=tmp_path / "mini")
        pins = [pin(keys.published(tmp_path / name)[-1]) for name in ("a", "b")]
        trusted = KnownKeys(tmp_path / "mini", "mini", pins=pins)
        return process.on(link_to(MemoryBus(w.remote, clock=w.clock), w.clock, trusted))

    def other(name: str) -> Actor:
        bus = MemoryBus(w.remote, clock=clock)
        bus.use_seals(KnownKeys(tmp_path / name, name).seals())
        return Actor(bus, clock, name)

    MemoryBus(w.remote, clock=clock).update(enrolled(w.requester.identity(), tmp_path / "mini", sign=True))
    start.world, start.other = w, other
    return start


def watch(fleet, runner, *others):
    """Let others send two beacons each beside a runner that looks."""
    for number in (1, 2):
        for actor in others:
            actor.bus.beacon(actor.beacon(number))
        fleet.world.clock.sleep(5.0)
        runner.step()


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (HOURS, "this clock is 3:00:00 ahead of the clocks of a, b"),
        (-HOURS, "this clock is 3:00:00 behind the clocks of a, b"),
    ],
)
def test_two_that_agree_against_it_stop_a_runner_which_says_so(fleet, by, words):
    w, runner = fleet.world, fleet(by)
    watch(fleet, runner, fleet.other("a"), fleet.other("b"))
    ref = w.ask()
    runner.step()
    assert ref.id not in w.requester.snapshot().claims
    assert f"nothing is taken: {words}" in "\n".join(w.log_lines)
    beacon = next(beacon for _, beacon in w.requester.read_beacons() if beacon.runner == "mini")
    assert (beacon.state, words in beacon.not_taking) == ("paused", True)


def test_against_one_other_it_goes_on_and_ends_nothing_as_expired(fleet, clock):
    w, runner = fleet.world, fleet(HOURS)
    watch(fleet, runner, fleet.other("a"))
    w.clock = clock
    by_this_clock_over, valid = w.ask(), w.ask(expires="2026-11-20T16:00:00.000Z")
    for _ in range(12):  # by its clock they are old, so the next whole listing shows them
        clock.sleep(30.0)
        w.serve_once(runner)
    assert by_this_clock_over.id not in w.requester.snapshot().claims
    assert w.claim(valid.id).state == "terminal"
    assert "nothing ends as expired: this clock is 3:00:00 ahead of the clock of a" in "\n".join(w.log_lines)


def test_one_of_two_that_differs_is_the_wrong_one_itself(fleet):
    w, runner = fleet.world, fleet(dt.timedelta())
    late = fleet.other("b")
    late.clock = WrongClock(w.clock.true, -HOURS)
    watch(fleet, runner, fleet.other("a"), late)
    ref = w.ask()
    w.serve_once(runner)
    assert w.claim(ref.id).state == "terminal"
    assert not any("clock" in line for line in w.log_lines)


def test_what_nobody_signed_and_what_came_long_ago_say_nothing(fleet, clock):
    w = fleet.world
    old = fleet.other("a")
    old.bus.beacon(old.beacon(7))
    clock.sleep(3 * 3600.0)
    runner = fleet(dt.timedelta())
    runner.step()
    del w.remote.refs["refs/kakeya/runner/a"]
    runner.step()
    old.bus.beacon(old.beacon(7))  # somebody puts back what lay there
    runner.step()
    assert not any("clock" in line for line in w.log_lines)


@pytest.mark.parametrize("others", [("a", "b"), ("a",)])
def test_by_a_clock_that_others_contradict_no_ref_of_a_run_is_dropped_as_old(fleet, clock, others):
    w, runner = fleet.world, fleet(dt.timedelta())
    ref = w.ask()
    w.serve_once(runner)
    del w.remote.refs[ref.ref]  # its sender's; pushed again, it is valid for hours
    w.clock.by = dt.timedelta(days=3)
    watch(fleet, runner, *map(fleet.other, others))
    clock.sleep(ARCHIVE_FIRST_S)
    runner.step()
    while runner._archiving._going:
        time.sleep(0.01)
    refs_of_run = {names.claim_ref(names.DEFAULT_PREFIX, ref.id), names.start_ref(names.DEFAULT_PREFIX, ref.id)}
    assert refs_of_run <= set(w.remote.refs)


@pytest.mark.parametrize("apart", [HOURS, -HOURS])
def test_beside_a_clock_that_is_hours_off_what_is_days_old_is_archived(fleet, clock, apart):
    """Nothing shows whose is wrong; that other one may go on so for months."""
    w, runner = fleet.world, fleet(dt.timedelta())
    w.ask()
    w.serve_once(runner)
    other = fleet.other("a")
    w.clock.by = dt.timedelta(days=3)
    other.clock = WrongClock(clock, w.clock.by + apart)
    watch(fleet, runner, other)
    clock.sleep(ARCHIVE_FIRST_S)
    runner.step()
    while runner._archiving._going:
        time.sleep(0.01)
    assert runner._clocks.doubt is not None
    assert any("/archive/" in ref for ref in w.remote.refs)


def test_a_clock_is_ahead_of_a_moment_of_the_year_1_by_no_more_than_leaves_a_time(fleet, clock):
    runner = fleet(dt.timedelta())
    runner._clocks._compare("a", "0001-01-01T00:00:00.000Z", came=True)
    assert runner._clocks.doubt is not None
    earliest = clock.now() - dt.timedelta(seconds=runner._clocks.ahead_s)
    assert 2000 < earliest.year < clock.now().year
