"""Runners put the root of their bus back, and do not push against each other or a stranger without pause."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.interface import RefUpdate
from bridge.errors import BusError
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.link import BusLink, link_to
from bridge.runner.connection.root_keeper import RootKeeper
from bridge.system.gitobjects import commit
from bridge.trust import runner_key
from bridge.trust.judgement import NamedKey
from bridge.trust.root import RootContent, fingerprint, read_root, write_root
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.unit.bridge.trust.stage import NOW, make_key

ROOT = names.root_ref(names.DEFAULT_PREFIX)


class Keeper:
    """A runner as far as it keeps the root of its bus."""

    def __init__(self, folder: Path, remote: MemoryRemote, clock: FakeClock) -> None:
        folder.mkdir()
        self.keys = KnownKeys(folder, folder.name)
        self.bus = MemoryBus(remote, clock=clock)
        self.link: BusLink = link_to(self.bus, clock, self.keys)
        self.mark = folder / "contested"
        self.keeper = RootKeeper(self.link, self.keys, clock, self.mark, logging.getLogger("a test"))

    def poll(self) -> None:
        self.bus.snapshot()
        self.keeper.tend()


def test_two_runners_of_different_knowledge_and_a_hostile_pusher_push_a_few_times_an_hour(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    owner = make_key(tmp_path / "owner")
    content = RootContent(bus_record(clock))
    first = write_root(content, owner, NOW)
    made.use_root(lambda _files, _bus_id: None)
    assert made.write_root(first, None)
    set_back = made.remote.refs[ROOT]
    old = Keeper(tmp_path / "old", made.remote, clock)
    newest = write_root(content, owner, NOW, read_root(first), make_key(tmp_path / "successor"))
    assert made.write_root(newest, set_back)
    new = Keeper(tmp_path / "new", made.remote, clock)
    pushes, tip = 0, made.remote.refs[ROOT]
    for _ in range(360):
        made.remote.refs[ROOT] = set_back  # a stranger, every ten seconds for an hour
        for keeper in (old, new):
            keeper.poll()
            pushes, tip = pushes + (made.remote.refs[ROOT] not in {set_back, tip}), made.remote.refs[ROOT]
        clock.advance(10.0)
    assert 3 <= pushes <= 6  # after 0, 60, 180, 420, 900, 1860 s, whoever of the two is first
    assert new.mark.exists()
    clock.advance(24 * 3600.0)
    for keeper in (old, new, old, new):
        keeper.poll()
    shown = made._identity._root.files(made.remote.refs[ROOT])
    assert dict(shown) == newest
    for keeper in (old, new):
        assert dict(keeper.keys.root().files) == newest


def test_a_root_that_was_deleted_or_forged_comes_back_and_a_higher_one_is_taken(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    owner, stranger = make_key(tmp_path / "owner"), make_key(tmp_path / "stranger")
    content = RootContent(bus_record(clock))
    first = write_root(content, owner, NOW)
    assert made.write_root(first, None)
    runner = Keeper(tmp_path / "runner", made.remote, clock)
    del made.remote.refs[ROOT]
    runner.poll()
    assert ROOT in made.remote.refs
    clock.advance(61.0)
    assert made.write_root(write_root(content, stranger, NOW), made.remote.refs[ROOT])
    runner.poll()
    fresh = MemoryBus(made.remote, clock=clock)
    roots: list[dict[str, bytes]] = []
    fresh.use_root(lambda files, _bus_id: roots.append(dict(files or {})))  # type: ignore[func-returns-value]
    fresh.identity()
    assert roots[-1] == first
    second = write_root(content, owner, NOW, read_root(first))
    assert fresh.write_root(second, fresh.root_tip)
    runner.poll()
    assert dict(runner.keys.root().files) == second


def test_a_root_that_the_remote_does_not_give_now_is_not_replaced_and_is_read_once_it_does(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    owner = make_key(tmp_path / "owner")
    content = RootContent(bus_record(clock))
    first = write_root(content, owner, NOW)
    assert made.write_root(first, None)
    runner = Keeper(tmp_path / "runner", made.remote, clock)
    revoking = write_root(replace(content, revoked={"stolen": NOW.timestamp()}), owner, NOW, read_root(first))
    assert made.write_root(revoking, made.remote.refs[ROOT])
    tip = made.remote.refs[ROOT]
    withheld = made.remote.objects.pop(tip)  # its git ends in the middle, as for want of memory
    for _ in range(3):
        runner.poll()
        clock.advance(3600.0)
    assert made.remote.refs[ROOT] == tip
    assert dict(runner.keys.root().files) == first
    made.remote.objects[tip] = withheld
    runner.poll()
    assert dict(runner.keys.root().files) == revoking


def test_a_root_that_was_withheld_for_hours_comes_back_as_soon_as_its_ref_is_deleted(tmp_path: Path) -> None:
    """As `bus repair` deletes it where its object is lost: the warnings meanwhile were no tries to put it back."""
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    owner = make_key(tmp_path / "owner")
    content = RootContent(bus_record(clock))
    first = write_root(content, owner, NOW)
    assert made.write_root(first, None)
    runner = Keeper(tmp_path / "runner", made.remote, clock)
    assert made.write_root(write_root(content, owner, NOW, read_root(first)), made.remote.refs[ROOT])
    lost = made.remote.refs[ROOT]
    del made.remote.objects[lost]
    for _ in range(36):
        runner.poll()
        clock.advance(600.0)
    assert made.remote.refs[ROOT] == lost
    del made.remote.refs[ROOT]
    runner.poll()
    assert ROOT in made.remote.refs


def test_a_reader_who_was_told_the_owner_takes_a_root_that_is_not_given_now_for_nobody_s_forgery(
    tmp_path: Path,
) -> None:
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    record, owner = made.identity(), make_key(tmp_path / "owner")
    assert made.write_root(write_root(RootContent(record), owner, NOW), None)
    tip = made.remote.refs[ROOT]
    withheld = made.remote.objects.pop(tip)
    fresh = MemoryBus(made.remote, clock=clock)  # as the clone of each job is
    fresh.use_root(KnownKeys(tmp_path / "reader", "mini", owner=fingerprint(owner.public)).judge_root)
    with pytest.raises(BusError, match="lists its root and does not give it"):
        fresh.identity()
    made.remote.objects[tip] = withheld
    assert fresh.identity() == record


RECORD = names.bus_ref(names.DEFAULT_PREFIX)


def test_a_record_that_was_deleted_comes_back_and_one_that_was_changed_is_left_to_the_root(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    runner = Keeper(tmp_path / "runner", made.remote, clock)  # on a bus that nobody owns
    record = made.identity()
    del made.remote.refs[RECORD]
    runner.poll()
    assert MemoryBus(made.remote, clock=clock).identity() == record
    for seconds, back in ((30.0, False), (31.0, True), (30.0, False)):  # not again within a minute, then two
        clock.advance(seconds)
        made.remote.refs.pop(RECORD, None)
        runner.poll()
        assert (RECORD in made.remote.refs) is back
    clock.advance(3600.0)
    junk = made._store.remote.refs[RECORD] = commit_of_nothing(made)
    runner.poll()
    assert made.remote.refs[RECORD] == junk


def test_readers_go_by_the_root_where_the_record_is_gone_or_no_record(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    made = MemoryBus(clock=clock)
    record = made.identity()
    assert made.write_root(write_root(RootContent(record), make_key(tmp_path / "owner"), NOW), None)
    for damage in (lambda: made.remote.refs.pop(RECORD), lambda: commit_of_nothing(made, RECORD)):
        damage()
        fresh = MemoryBus(made.remote, clock=clock)
        fresh.use_root(KnownKeys(tmp_path / f"reader-{damage}", "mini").judge_root)
        assert fresh.identity() == record
    del made.remote.refs[RECORD]
    with pytest.raises(BusError, match="carries the root of a bus"):
        MemoryBus(made.remote, clock=clock).create(bus_record(clock))
    assert RECORD not in made.remote.refs
    restarted = Keeper(tmp_path / "restarted", made.remote, clock)
    restarted.poll()
    assert MemoryBus(made.remote, clock=clock).identity() == record


def commit_of_nothing(bus: MemoryBus, ref: str | None = None) -> str:
    """Push a commit with an empty tree, to a ref if one is named, and return its id."""
    top, objects = commits.file_tree({})
    head = commit(top.oid, (), 0, "nothing")
    bus._store.write([*objects, head])
    bus._store.push([RefUpdate("refs/heads/nothing" if ref is None else ref, head.oid, None)])
    return head.oid


@pytest.mark.parametrize(
    ("how", "line"),
    [("revoked", "was revoked by the bus's owner on 20"), ("retired", "was retired by the bus's owner on 20")],
)
def test_a_runner_whose_key_the_owner_ended_is_told_and_takes_no_more(tmp_path: Path, how: str, line: str) -> None:
    clock, now_s = FakeClock(NOW), time.time()
    made, owner = MemoryBus(clock=clock), make_key(tmp_path / "owner")
    folder = tmp_path / "mini"
    folder.mkdir()
    key = NamedKey("mini", runner_key.generate(folder, "mini").public, since=0.0)
    content = RootContent(bus_record(clock), (key,))
    first = write_root(content, owner, NOW)
    assert made.write_root(first, None)
    lines: list[str] = []
    keys = KnownKeys(folder, "mini", say=lines.append)
    bus = MemoryBus(made.remote, clock=clock)
    bus.use_root(keys.judge_root)
    bus.identity()
    assert keys.ended() is None
    ended = replace(key, until=now_s - 60.0)
    after = replace(content, revoked={key.key: now_s}) if how == "revoked" else replace(content, runners=(ended,))
    assert bus.write_root(write_root(after, owner, NOW, read_root(first)), bus.root_tip)
    bus.snapshot()
    assert line in (keys.ended() or "")
    assert lines[-1].endswith("nothing is taken any more")
