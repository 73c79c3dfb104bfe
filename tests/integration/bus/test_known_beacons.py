"""The beacons that were good come with the listing that opens a bus, over real git; what a stranger left costs once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.system.clock import SystemClock
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import bus_record
from tests.integration.bus.test_hostile_refs import CountedGit
from tests.support.hostile_refs import MIB, PREFIX, Stranger

CLOCK = SystemClock()
MINI, OTHER = f"{PREFIX}runner/mini", f"{PREFIX}runner/other"


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedGit:
    made = CountedGit(tmp_path)
    monkeypatch.setenv("PATH", made.path, prepend=":")
    return made


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """Return a bus with two runners, whose beacons a requester has read."""
    path = bare(tmp_path / "remote.git")
    host = open_at(path, tmp_path / "host")
    host.create(bus_record(CLOCK))
    for name in ("mini", "other"):
        host.beacon(Actor(host, CLOCK, name).beacon(1))
    assert runners(path, tmp_path) == ["mini", "other"]
    return path


def open_at(path: Path, state: Path) -> RefBus:
    return open_bus(str(path), repository=None, state=state, clock=CLOCK)


def runners(path: Path, folder: Path) -> list[str]:
    """Return whose beacons a command of the requester's reads as it opens the bus."""
    bus = open_at(path, folder / "client")
    bus.foresee_runners()
    bus.identity()
    names = [beacon.runner for _, beacon in bus.read_beacons(as_opened=True)]
    assert not list((folder / "client" / "isolated").glob("*"))
    return names


def calls(counted: CountedGit) -> int:
    """Return how often the remote was asked since the last time."""
    taken = counted.take()
    return sum(taken.values()) - taken["local"]


def test_one_call_lists_the_bus_and_brings_the_beacons_that_were_good(
    remote: Path, tmp_path: Path, counted: CountedGit
) -> None:
    host = open_at(remote, tmp_path / "host")
    for number in (2, 3):
        host.beacon(Actor(host, CLOCK, "mini").beacon(number))
    counted.take()
    assert runners(remote, tmp_path) == ["mini", "other"]
    assert calls(counted) == 1


def test_nothing_is_brought_that_only_begins_like_a_known_beacon(
    remote: Path, tmp_path: Path, counted: CountedGit
) -> None:
    stranger = Stranger(remote)
    stranger.ref(f"{MINI}-2", stranger.file("beacon.json", os.urandom(5 * MIB)))
    assert runners(remote, tmp_path) == ["mini", "other"]  # which looks at what is new, once
    counted.take()
    assert runners(remote, tmp_path) == ["mini", "other"]
    assert calls(counted) == 1


@pytest.mark.parametrize("kind", ["huge", "blob", "nothing", "another's", "gone"])
def test_what_a_stranger_leaves_at_a_known_beacon_costs_the_others_one_look(
    kind: str, remote: Path, tmp_path: Path, counted: CountedGit
) -> None:
    stranger = Stranger(remote)
    if kind == "gone":
        git("update-ref", "-d", MINI, cwd=remote)
    else:
        left = {
            "huge": lambda: stranger.file("beacon.json", os.urandom(5 * MIB)),
            "blob": lambda: stranger.put("blob", b"x"),
            "nothing": lambda: "1" * 40,
            "another's": lambda: git("rev-parse", OTHER, cwd=remote).strip(),
        }
        stranger.ref(MINI, left[kind]())
    assert runners(remote, tmp_path) == ["other"]
    counted.take()
    assert runners(remote, tmp_path) == ["other"]
    # What the remote has lost is asked for again by whoever starts anew: it may be there again.
    assert calls(counted) <= (3 if kind == "nothing" else 1)


def test_a_beacon_that_is_good_again_is_brought_again(remote: Path, tmp_path: Path, counted: CountedGit) -> None:
    good = git("rev-parse", MINI, cwd=remote).strip()
    stranger = Stranger(remote)
    stranger.ref(MINI, stranger.put("blob", b"x"))
    assert runners(remote, tmp_path) == ["other"]
    stranger.ref(MINI, good)
    assert runners(remote, tmp_path) == ["mini", "other"]
    counted.take()
    assert runners(remote, tmp_path) == ["mini", "other"]
    assert calls(counted) == 1
