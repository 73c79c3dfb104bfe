"""Two runners of one name: a copied state folder on a bus that signs does not start beside its original."""

from __future__ import annotations

import shutil

import pytest

from bridge.errors import TwinError
from bridge.records.bus import RunnerStart
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.link import link_to
from bridge.runner.state.attestations import enrolled
from bridge.trust import runner_key as keys
from tests.fakes.bus_actors import Actor
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.requester import StepClock


@pytest.fixture
def clock():
    return StepClock()


@pytest.fixture
def start(world, tmp_path):
    """Return a function that starts a runner with a state folder of this name, and the world it is in."""
    w = world()
    identity = tmp_path / "identity"
    keys.generate(identity, "mini")

    def make(name: str, *, signs: bool = True):
        process = w.new_process(name, identity=identity)
        by_key = KnownKeys(identity, "mini") if signs else None
        return process.on(link_to(MemoryBus(w.remote, clock=w.clock), w.clock, by_key)), process

    MemoryBus(w.remote, clock=w.clock).update(enrolled(w.requester.identity(), identity, sign=True))
    make.world = w
    return make


def copied(process, folder):
    """Copy the state of a runner that lives, as a backup or an image of its machine does."""
    shutil.copytree(process.folder.root, folder)


def test_a_copy_beside_a_living_original_takes_nothing_and_does_not_start(start):
    w = start.world
    original, process = start("one")
    original.step()
    copied(process, w.state / "two")
    w.clock.sleep(6.0)
    original.step()
    copy, _ = start("two")
    ref = w.ask()
    copy.step()
    assert copy.is_watching
    assert ref.id not in w.requester.snapshot().claims
    for _ in range(2):
        original.step()  # lives: its beacon's number goes up
        original.join()
        w.clock.sleep(1.5)
    with pytest.raises(TwinError, match="another runner named mini lives on this machine: started") as caught:
        copy.step()
    assert caught.value.exit_code == 3
    assert w.claim(ref.id).state == "terminal"
    assert len(w.executor.executed) == 1


def test_a_beacon_that_nobody_renews_is_waited_for_two_intervals_and_no_longer(start):
    w = start.world
    gone, process = start("one")
    gone.step()
    copied(process, w.state / "two")
    w.clock.sleep(6.0)
    gone.step()  # and its machine is destroyed
    copy, _ = start("two")
    ref = w.ask()
    interval_s = 2 * w.requester.identity().beacon_interval_s  # as its second beacon says, in which nothing was new
    for at_s in (0.0, 1.9 * interval_s):
        w.clock.sleep(at_s)
        copy.step()
        assert copy.is_watching
    w.clock.sleep(0.2 * interval_s)
    copy.step()
    assert not copy.is_watching
    w.serve_once(copy)
    assert w.claim(ref.id).state == "terminal"


def test_a_restart_with_its_own_state_and_one_after_a_farewell_watch_nobody(start):
    first, _ = start("one")
    first.step()
    again, _ = start("one")
    again.step()
    assert not again.is_watching
    again.announce_end()
    new, _ = start("elsewhere")
    new.step()
    assert not new.is_watching


def test_of_two_that_meet_later_the_one_that_started_later_takes_no_more(start):
    w = start.world
    first, process = start("one")
    copied(process, w.state / "two")
    w.clock.sleep(1.0)
    second, _ = start("two")
    first.step()
    del w.remote.refs["refs/kakeya/runner/mini"]
    second.step()  # and does not see the first one
    assert not second.is_watching
    for _ in range(12):
        w.clock.sleep(11.0)
        first.step()
        second.step()
    assert first._twins.wait is None
    assert "started later and takes no more" in (second._twins.wait or "")


def test_where_nothing_is_signed_it_is_only_said(start):
    w = start.world
    first, process = start("one", signs=False)
    first.step()
    copied(process, w.state / "two")
    copy, _ = start("two", signs=False)
    for _ in range(3):
        w.clock.sleep(11.0)
        first.step()
        copy.step()
    assert any("on a bus that signs this one would not start" in line for line in w.log_lines)


def test_a_beacon_of_its_name_that_says_it_is_renewed_once_in_an_age_is_not_waited_for_so_long(start):
    w = start.world
    by_nobody = RunnerStart(time="2026-01-01T00:00:00.000Z", nonce="f" * 32, machine="0" * 64)
    stranger = Actor(MemoryBus(w.remote, clock=w.clock), w.clock, "mini")
    stranger.bus.beacon(stranger.beacon(1, start=by_nobody, interval_s=1e308))
    runner, _ = start("one", signs=False)
    runner.step()
    assert runner.is_watching
    w.clock.sleep(2 * 3600.0 + 1.0)
    ref = w.ask()
    w.serve_once(runner)
    assert not runner.is_watching
    assert w.claim(ref.id).state == "terminal"
