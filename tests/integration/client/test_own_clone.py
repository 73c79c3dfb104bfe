"""What is read of the user's own clone: its state as git itself tells it, and nothing where git reads nothing."""

from __future__ import annotations

import io
import os

import pytest

from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone.git_door import DirtyState, dirty_state, find_request_branch
from bridge.errors import UsageError
from bridge.system.clock import SystemClock
from tests.fakes.clone import Clone
from tests.fakes.requester import Ran


@pytest.fixture
def clone(tmp_path):
    made = Clone(tmp_path)
    made.commit({"a.txt": "one\n", "b.txt": "two\n", "dir/c.txt": "three\n"})
    return made


def mac(clone: Clone, *words: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    own = {f"KAKEYA_{name}_DIR": str(clone.root / name.lower()) for name in ("DATA", "CONFIG")}
    code = main(list(words), Surroundings(out, err, own, clone.top, SystemClock()))
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("setting", ["index.version=4", "core.splitIndex=true", "core.untrackedCache=true"])
def test_the_state_of_a_work_tree_is_git_s_own_whatever_its_index(clone, setting):
    clone.git("config", *setting.split("="))
    clone.git("update-index", "--force-write-index")
    index = clone.top / ".git" / "index"
    (clone.top / "a.txt").write_text("other\n")
    clone.git("mv", "b.txt", "renamed.txt")
    (clone.top / "dir" / "new").mkdir()
    (clone.top / "dir" / "new" / "d.txt").write_text("four\n")
    before = index.read_bytes()
    assert dirty_state(clone.top) == DirtyState(("a.txt", "renamed.txt"), 1)
    assert index.read_bytes() == before


def test_a_repository_without_a_commit_has_a_state(tmp_path):
    top = tmp_path / "clone"
    top.mkdir()
    empty = Clone(tmp_path)
    empty.git("init", "-q")
    (top / "x").write_text("x")
    assert dirty_state(top) == DirtyState((), 1)


def test_files_that_are_not_merged_are_counted(clone):
    clone.git("checkout", "-q", "-b", "side")
    clone.commit({"a.txt": "side\n"})
    clone.git("checkout", "-q", "main")
    clone.commit({"a.txt": "main\n"})
    with pytest.raises(Exception, match="merge"):
        clone.git("merge", "side")
    assert dirty_state(clone.top).unmerged == 1
    clone.git("branch", "mac-bridge/quick-01j0000000000000000000000a")
    assert find_request_branch(clone.top, "01j").run_id == "01j0000000000000000000000a"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_clone_of_another_user_is_told_from_one_without_remotes(clone, tmp_path):
    clone.git("remote", "add", "origin", str(tmp_path / "bus.git"))
    (clone.top / "kakeya.toml").write_text('schema = 1\nroute = "origin"\n')
    for folder in (clone.top, clone.top / ".git"):
        os.chown(folder, 12345, 12345)
    ran = mac(clone, "ls")
    assert ran.code == 2
    assert "dubious ownership" in ran.err
    assert "safe.directory" in ran.err
    with pytest.raises(UsageError, match="dubious ownership"):
        dirty_state(clone.top)
