"""A result is published once, is the same for the same input, and is found wherever its branch went."""

from __future__ import annotations

import pytest

from bridge.bus.refs import names
from bridge.bus.tree import Tree
from bridge.errors import (
    FencedError,
    IntegrityError,
)
from bridge.system.gitobjects import DIRECTORY, TreeEntry, commit, tree
from tests.conformance.bus.conftest import Place
from tests.fakes.bus_actors import Actor


def test_publishing_shows_the_result_and_the_copy_reaches_the_branch(place: Place, host: Actor, client: Actor) -> None:
    sent = client.submit()
    files = {"manifest.json": b"{}", "reports/deep/a.json": b"\x00\xff", "log.txt": b""}
    ended = host.publish(sent.ref, host.start(sent.ref, host.claim(sent.ref)), files)
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert view.delivery is None
    assert client.bus.read_result(view.claim.claim.result_oid or "") == Tree(files)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    assert client.bus.view(sent.ref.id).delivery == "copied"
    assert place.refs()[sent.ref.ref] != sent.ref.oid


def test_an_ended_request_is_no_longer_pending(host: Actor, client: Actor) -> None:
    first, second = client.submit(), client.submit()
    ended = host.run(first.ref)
    host.bus.copy_result(first.ref, ended.claim.result_oid or "")
    assert host.bus.snapshot().requests == (second.ref,)


def test_a_branch_that_carries_a_result_is_done_even_without_its_claim(
    place: Place, host: Actor, other: Actor, client: Actor
) -> None:
    sent = client.submit()
    ended = host.run(sent.ref)
    host.bus.copy_result(sent.ref, ended.claim.result_oid or "")
    place.set_ref(names.claim_ref(names.DEFAULT_PREFIX, sent.ref.id), None)
    (ref,) = other.bus.snapshot().requests
    with pytest.raises(FencedError, match="carries a result"):
        other.bus.read_request(ref)
    assert other.bus.snapshot().requests == ()


@pytest.mark.parametrize("fate", ["branch_deleted", "branch_moved", "branch_rewound"])
def test_a_branch_that_went_elsewhere_keeps_its_result_under_the_claim(
    place: Place, host: Actor, client: Actor, fate: str
) -> None:
    sent, unrelated = client.submit(), client.submit()
    host.bus.read_request(sent.ref)
    if fate == "branch_rewound":
        host.claim(unrelated.ref)
    place.set_ref(sent.ref.ref, None if fate == "branch_deleted" else unrelated.ref.oid)
    ended = host.run(sent.ref)
    expected = "branch_deleted" if fate == "branch_deleted" else "branch_moved"
    before = place.refs().get(sent.ref.ref)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == expected
    assert place.refs().get(sent.ref.ref) == before
    view = client.bus.view(sent.ref.id)
    assert view.delivery == expected
    assert view.claim is not None
    assert "manifest.json" in client.bus.read_result(view.claim.claim.result_oid or "").files


def test_a_copy_can_be_made_by_another_process_of_the_same_host(host: Actor, other: Actor, client: Actor) -> None:
    sent = client.submit()
    ended = host.run(sent.ref)
    view = other.bus.read_claim(sent.ref.id)
    assert view is not None
    assert other.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"


def test_results_are_the_same_commit_for_the_same_input(host: Actor, other: Actor) -> None:
    run_id = host.new_id()
    tree = Tree({"b": b"2", "a/x": b"1"})
    assert host.bus.build_result(tree, run_id) == other.bus.build_result(tree, run_id)
    assert host.bus.build_result(tree, run_id) != host.bus.build_result(Tree({"b": b"3"}), run_id)


@pytest.mark.parametrize("path", ["../x", ".github/workflows/a.yml", "a/.git/config", "/x", "a//b", "a\nb"])
def test_a_result_holds_only_plain_relative_paths(host: Actor, path: str) -> None:
    with pytest.raises(IntegrityError):
        host.bus.build_result(Tree({path: b""}), host.new_id())


def test_what_is_no_result_is_an_integrity_error(host: Actor, client: Actor) -> None:
    with pytest.raises(IntegrityError):
        client.bus.read_result("0123" * 10)


def test_a_result_of_folders_that_hold_nothing_is_refused_before_they_are_all_read(client: Actor) -> None:
    top = tree(())
    made = [top]
    for _ in range(6):
        top = tree(TreeEntry(DIRECTORY, f"{number:03}".encode(), top.oid) for number in range(200))
        made.append(top)
    head = commit(top.oid, (), 0, "result")
    client.bus._store.write([*made, head])
    with pytest.raises(IntegrityError, match="an empty folder"):
        client.bus.read_result(head.oid)
