"""The parts under the protocol: what may follow what, what a push became, what a host may spend, what git said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.bus.open.create import new_record
from bridge.bus.store.interface import RefUpdate
from bridge.bus.store.listing import parse_ls_remote, parse_trace
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.swap import swap
from bridge.errors import BusError, RemoteError
from bridge.records.claim import Claim
from bridge.run.state import check_first, check_next
from bridge.system.gitobjects import (
    DIRECTORY,
    REGULAR,
    ObjectFormatError,
    TreeEntry,
    blob,
    commit,
    parse_commit,
    parse_tree,
    tree,
)
from tests.fakes.bus_actors import FakeClock
from tests.fakes.git_servers import bare
from tests.fakes.memory_bus import Faults, MemoryRemote, MemoryStore


def claim(state: str = "claimed", sequence: int = 0, **changes: object) -> Claim:
    fields: dict[str, object] = {
        "id": "0" * 26,
        "request_oid": "1" * 40,
        "state": state,
        "runner": "a",
        "nonce": f"{sequence:032x}",
        "sequence": sequence,
        "lease_s": 15.0,
        "time": "2026-01-02T03:04:05.000Z",
    }
    if state == "terminal":
        fields |= {"reason": "passed", "exit_code": 0}
    return Claim.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (claim(), claim("claimed", 1)),
        (claim(), claim("claimed", 1, runner="b")),
        (claim(), claim("started", 1)),
        (claim(), claim("terminal", 1, reason="request_rejected", exit_code=2)),
        (claim("started", 1), claim("started", 2, phase="judging")),
        (claim("started", 1), claim("terminal", 2)),
        (claim("started", 1), claim("terminal", 2, runner="b", reason="runner_lost", exit_code=3)),
    ],
)
def test_what_may_follow_follows(old: Claim, new: Claim) -> None:
    check_next(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (claim(), claim("claimed", 2)),
        (claim(), claim("claimed", 1, nonce="0" * 32)),
        (claim(), claim("claimed", 1, id="1" * 26)),
        (claim(), claim("claimed", 1, request_oid="2" * 40)),
        (claim("started", 1), claim("claimed", 2)),
        (claim("started", 1), claim("started", 2, runner="b")),
        (claim("started", 1), claim("terminal", 2, runner="b")),
        (claim("terminal", 2), claim("terminal", 3)),
        (claim("terminal", 2), claim("claimed", 3)),
        (claim(), claim("terminal", 1, reason=None)),
        (claim(), claim("started", 1, reason="passed")),
        (claim(), claim("started", 1, result_oid="3" * 40)),
    ],
)
def test_what_may_not_follow_is_refused(old: Claim, new: Claim) -> None:
    with pytest.raises(BusError):
        check_next(old, new)


def test_a_chain_begins_claimed_at_zero() -> None:
    check_first(claim())
    for first in (claim("started"), claim("claimed", 1)):
        with pytest.raises(BusError):
            check_first(first)


def store(*fates: str | None) -> MemoryStore:
    """A remote whose next pushes meet these fates, then none."""
    left = list(fates)
    faults = Faults(lambda operation: left.pop(0) if operation == "push" and left else None)
    made = MemoryStore(MemoryRemote(), faults)
    made.write([commit_object])
    return made


tree_object = tree([])
commit_object = commit(tree_object.oid, (), 0, "x")
UPDATE = RefUpdate("refs/x", commit_object.oid, None)


def swapped(memory_store: MemoryStore):
    memory_store.write([tree_object, commit_object])
    return swap(memory_store, [UPDATE], authority="refs/x")["refs/x"]


def test_a_push_is_believed_when_it_is_acknowledged_or_seen_afterwards() -> None:
    assert swapped(store()).landed
    assert swapped(store("unanswered")).landed
    assert swapped(store("repeated")).landed


def test_a_push_that_did_not_arrive_is_an_error_that_allows_a_repeat() -> None:
    memory_store = store("lost")
    with pytest.raises(RemoteError, match="unchanged"):
        swapped(memory_store)
    assert swapped(memory_store).landed


def test_a_push_that_arrives_late_lands_once() -> None:
    memory_store = store("delayed")
    with pytest.raises(RemoteError):
        swapped(memory_store)
    assert swapped(memory_store).landed
    memory_store.faults.flush()
    assert memory_store.remote.refs == {"refs/x": commit_object.oid}


def test_a_ref_that_is_elsewhere_is_an_answer_not_an_error() -> None:
    memory_store = store()
    memory_store.remote.refs["refs/x"] = "f" * 40
    outcome = swapped(memory_store)
    assert (outcome.landed, outcome.tip) == (False, "f" * 40)


@pytest.mark.parametrize("name", ["\u202e\x1b[2J", "y" * 5000])
def test_a_name_of_a_stranger_in_the_way_comes_through_clean_and_bounded(name: str) -> None:
    memory_store = store()
    memory_store.write([tree_object])
    memory_store.remote.refs[f"refs/x/y/{name}"] = "f" * 40
    with pytest.raises(RemoteError, match="is in its way") as caught:
        swap(memory_store, [RefUpdate("refs/x/y", commit_object.oid, None)], authority="refs/x/y")
    assert caught.value.line.isprintable()
    assert len(caught.value.line) < 800
    assert "git push memory: :REF" in caught.value.line


def test_the_push_budget_is_shared_by_the_runners_of_a_host(tmp_path: Path) -> None:
    clock = FakeClock()
    path = tmp_path / "pushes" / "budget.json"
    first, second = Pacer(path, 4.0, clock), Pacer(path, 4.0, clock)
    assert first.wait_s() == second.wait_s() == 0.0
    first.pushed()
    assert second.wait_s() == 15.0
    clock.advance(15)
    assert second.wait_s() == 0.0
    for _ in range(4):  # claims and ends are never held back, but what can wait pays for them
        second.pushed()
    assert first.wait_s() == 60.0
    clock.advance(59)
    assert 0 < first.wait_s() <= 1.0
    clock.advance(1)
    assert first.wait_s() == 0.0


def test_the_budget_keeps_to_four_pushes_in_any_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    pacers = [Pacer(tmp_path / "budget.json", 4.0, clock) for _ in range(3)]
    pushed: list[float] = []
    for second in range(600):
        pacer = pacers[second % 3]
        if pacer.wait_s() == 0.0:
            pacer.pushed()
            pushed.append(clock.steady_s())
        clock.advance(1)
    assert all(sum(start <= at_s < start + 60 for at_s in pushed) <= 4 for start in pushed)
    assert len(pushed) >= 36


def test_a_budget_file_from_before_a_reboot_or_cut_short_holds_nobody_back(tmp_path: Path) -> None:
    path = tmp_path / "budget.json"
    for text in (json.dumps([999_999.0] * 9), "[1.0, ", "null", '{"a": 1}', "\x00"):
        path.write_text(text)
        assert Pacer(path, 4.0, FakeClock()).wait_s() == 0.0


def test_a_local_bus_pauses_less_than_a_second() -> None:
    clock = FakeClock()
    pacer = Pacer(None, 4.0, clock)
    pacer.pushed()
    assert 0 < pacer.wait_s() < 1
    clock.advance(1)
    assert pacer.wait_s() == 0.0


def test_a_new_record_has_a_random_id_and_times_that_fit_the_place() -> None:
    clock = FakeClock()
    local, hosted = (new_record(clock, wake="poll", local=place) for place in (True, False))
    assert local.bus_id != hosted.bus_id
    assert local.beacon_interval_s < hosted.beacon_interval_s
    assert local.lease_s == hosted.lease_s  # the most a lease may last; how long it is follows from the pushes
    assert new_record(clock, wake="actions", local=False).request_form == "workload"


def test_objects_have_the_ids_that_git_gives_them(tmp_path: Path) -> None:
    path = bare(tmp_path / "r.git")

    def git(*arguments: str, data: bytes) -> str:
        done = subprocess.run(["git", *arguments], cwd=path, input=data, capture_output=True, check=True)
        return done.stdout.decode().strip()

    content = blob(b"a\x00b")
    assert git("hash-object", "-w", "--stdin", data=content.data) == content.oid
    inner = tree([TreeEntry(REGULAR, b"a", content.oid)])
    # Git sorts folders as if their names ended in a slash: "a.b", "a/", "a0".
    top = tree(
        [
            TreeEntry(DIRECTORY, b"a", inner.oid),
            TreeEntry(REGULAR, b"a0", content.oid),
            TreeEntry(REGULAR, b"a.b", content.oid),
        ]
    )
    for made in (inner, top):
        assert git("hash-object", "-t", "tree", "-w", "--stdin", data=made.data) == made.oid
    assert [entry.name for entry in parse_tree(top.data)] == [b"a.b", b"a", b"a0"]
    head = commit(top.oid, ("1" * 40,), 1_767_323_045, "a message")
    assert git("hash-object", "-t", "commit", "--stdin", data=head.data) == head.oid
    parsed = parse_commit(head.data)
    assert (parsed.tree, parsed.parents, parsed.time_unix_s, parsed.message) == (
        top.oid,
        ("1" * 40,),
        1_767_323_045,
        "a message\n",
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_object_raise_only_the_declared_error(data: bytes) -> None:
    for parse in (parse_tree, parse_commit):
        try:
            parse(data)
        except ObjectFormatError:
            continue


TRACE = b"""12:00:00.0 pkt-line.c:80           packet:        fetch< version 2
12:00:00.0 pkt-line.c:80           packet:        fetch< 0000
12:00:00.0 pkt-line.c:80           packet:        fetch> command=ls-refs
12:00:00.0 pkt-line.c:80           packet:        fetch> 0000
12:00:00.0 pkt-line.c:80           packet:  upload-pack> aaaa
12:00:00.0 pkt-line.c:80           packet:        fetch< %s refs/kakeya/bus
12:00:00.0 pkt-line.c:80           packet:        fetch< %s refs/tags/v peeled:%s
12:00:00.0 pkt-line.c:80           packet:        fetch< 0000
""" % (b"a" * 40, b"b" * 40, b"c" * 40)


def test_a_listing_is_read_from_a_whole_exchange_only() -> None:
    listing = parse_trace(TRACE)
    assert listing is not None
    assert listing.refs == {"refs/kakeya/bus": "a" * 40, "refs/tags/v": "b" * 40}
    assert listing.bytes_sent == len("0000command=ls-refs\n") + len("00000000\n")
    lines = TRACE.splitlines(keepends=True)
    for cut in range(len(lines)):
        assert parse_trace(b"".join(lines[:cut])) is None
    assert parse_trace(TRACE.replace(b"command=ls-refs", b"command=other")) is None
    assert parse_trace(TRACE.replace(b"refs/kakeya/bus", b"something else")) is None


def test_ls_remote_lists_refs_without_peeled_tags() -> None:
    output = b"%s\tHEAD\n%s\trefs/heads/a\n%s\trefs/tags/v^{}\n" % (b"a" * 40, b"b" * 40, b"c" * 40)
    assert parse_ls_remote(output).refs == {"refs/heads/a": "b" * 40}
