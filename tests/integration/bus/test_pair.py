"""Two trees for one run over a real remote: the base must be in what was pushed, both share the bounds of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.content.checkout import CheckoutBounds, check_out
from bridge.bus.content.workload import capture
from bridge.bus.refs.history import reaches
from bridge.bus.views import RequestRef
from bridge.errors import BusError, RequestRejectedError
from bridge.system.gitobjects import commit as make_commit
from bridge.system.gitobjects import tree as make_tree
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import git
from tests.fakes.memory_bus import MemoryRemote, MemoryStore


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Three commits on main, and one beside them that main never had."""
    path = tmp_path / "clone"
    git("init", "--quiet", "--initial-branch=main", str(path))
    for number in range(3):
        (path / "code.py").write_text(f"print({number})\n")
        git("add", ".", cwd=path)
        git("commit", "--quiet", "--no-gpg-sign", "-m", f"commit {number}", cwd=path)
    return path


def sent(clone: Path, remote: Path, tmp_path: Path) -> tuple[RequestRef, str]:
    clock, state = FakeClock(), tmp_path / "state"
    captured = capture(clone, state=state)
    client = Actor(open_bus(str(remote), repository=clone, state=state, clock=clock), clock)
    return client.submit(client.request(workload=captured.workload)).ref, captured.workload.tree


def folder(tmp_path: Path) -> Path:
    into = tmp_path / "job"
    into.mkdir()
    return into


@pytest.mark.parametrize(("rev", "content"), [("HEAD~1", "1"), ("HEAD~2", "0")])
def test_a_commit_of_the_pushed_history_lies_beside_the_tree_that_was_sent(
    clone: Path, remote: Path, host: Actor, tmp_path: Path, rev: str, content: str
) -> None:
    ref, tree = sent(clone, remote, tmp_path)
    into = folder(tmp_path)
    host.bus.fetch_pair(ref, tree, git("rev-parse", rev, cwd=clone), into)
    assert sorted(path.name for path in into.iterdir()) == ["base", "head"]
    assert (into / "head" / "code.py").read_text() == "print(2)\n"
    assert (into / "base" / "code.py").read_text() == f"print({content})\n"
    assert list((tmp_path / "host" / "isolated").glob("*-base.git")) == []


def test_a_commit_that_is_on_the_remote_but_not_in_the_history_is_refused(
    clone: Path, remote: Path, host: Actor, tmp_path: Path
) -> None:
    ref, tree = sent(clone, remote, tmp_path)
    top = git("rev-parse", "HEAD^{tree}", cwd=clone)
    side = git("commit-tree", "-m", "side", top, cwd=clone)
    git("push", "--quiet", str(remote), f"{side}:refs/heads/side", cwd=clone)
    for base in (side, "ab" * 20):
        into = tmp_path / base[:6]
        into.mkdir()
        with pytest.raises(RequestRejectedError, match="not in the history that was pushed"):
            host.bus.fetch_pair(ref, tree, base, into)
        assert list(into.iterdir()) == []


def test_a_replace_ref_lends_no_history(clone: Path, remote: Path, host: Actor, tmp_path: Path) -> None:
    top = git("rev-parse", "HEAD^{tree}", cwd=clone)
    side = git("commit-tree", "-m", "side", top, cwd=clone)
    ref, tree = sent(clone, remote, tmp_path)
    lent = git("commit-tree", "-m", "lent", "-p", side, top, cwd=clone)
    git("push", "--quiet", str(remote), f"{lent}:refs/replace/{git('rev-parse', 'HEAD', cwd=clone)}", cwd=clone)
    with pytest.raises(RequestRejectedError, match="not in the history"):
        host.bus.fetch_pair(ref, tree, side, folder(tmp_path))


def test_what_the_first_tree_used_is_missing_for_the_second(
    clone: Path, remote: Path, host: Actor, tmp_path: Path
) -> None:
    ref, tree = sent(clone, remote, tmp_path)
    host.bus.read_request(ref)
    store, top = host.bus._requests.workload(ref, tree)
    first, second = folder(tmp_path), tmp_path / "second"
    second.mkdir()
    with store.reader() as reader:
        left = check_out(reader, top, first, FakeClock(), CheckoutBounds(entries=1, bytes=12, wall_s=60.0))
        assert (left.entries, left.bytes) == (0, 3)
        with pytest.raises(RequestRejectedError, match="more than 0 entries"):
            check_out(reader, top, second, FakeClock(), left)
        with pytest.raises(RequestRejectedError, match="more than 3 bytes"):
            check_out(reader, top, second, FakeClock(), CheckoutBounds(entries=9, bytes=left.bytes, wall_s=60.0))


def test_ancestors_are_looked_for_through_merges_and_within_a_bound() -> None:
    store = MemoryStore(MemoryRemote())
    empty = make_tree([])
    root = make_commit(empty.oid, (), 1, "root")
    left, right = make_commit(empty.oid, (root.oid,), 2, "left"), make_commit(empty.oid, (root.oid,), 3, "right")
    merge = make_commit(empty.oid, (left.oid, right.oid), 4, "merge")
    store.write([empty, root, left, right, merge])
    with store.reader() as reader:
        assert reaches(reader, merge.oid, right.oid, 10)
        assert reaches(reader, merge.oid, root.oid, 10)
        assert not reaches(reader, left.oid, right.oid, 10)
        assert not reaches(reader, merge.oid, merge.oid, 10)
        with pytest.raises(BusError, match="not among the last 2 commits"):
            reaches(reader, merge.oid, "ab" * 20, 2)
