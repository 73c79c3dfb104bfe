"""What is sent of a clone is what git itself would commit there, entry by entry, whatever shape index and tree are in.

The oracle is a copy of the clone in which `git commit --all` is given; of a revision, its own tree.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.content.workload import capture
from bridge.bus.open.create import new_record
from bridge.system.clock import SystemClock
from tests.fakes.asking import make_request, push
from tests.fakes.git_servers import bare, git

CLOCK = SystemClock()
NOBODY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.hooksPath=/dev/null")


def config(top: Path, **settings: str) -> None:
    for key, value in settings.items():
        git("config", key.replace("_", "."), value, cwd=top)


def autocrlf(top: Path) -> None:
    config(top, core_autocrlf="true")
    (top / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (top / "b.bin").write_bytes(b"\0\r\n\xff")


def sparse(top: Path) -> None:
    git("sparse-checkout", "set", "dir", cwd=top)
    (top / "dir" / "c.txt").write_text("inside the cone\n")
    assert not (top / "other" / "d.txt").exists()


def skip_worktree(top: Path) -> None:
    git("update-index", "--skip-worktree", "a.txt", cwd=top)
    (top / "a.txt").write_text("stays here\n")
    (top / "dir" / "c.txt").write_text("is sent\n")


def assume_unchanged(top: Path) -> None:
    git("update-index", "--assume-unchanged", "a.txt", cwd=top)
    (top / "a.txt").write_text("stays here\n")
    (top / "dir" / "c.txt").write_text("is sent\n")


def intent_to_add(top: Path) -> None:
    (top / "new.txt").write_text("new\n")
    git("add", "-N", "new.txt", cwd=top)
    (top / "untracked.txt").write_text("mine\n")


def split_index(top: Path) -> None:
    config(top, core_untrackedCache="true")
    git("update-index", "--split-index", cwd=top)
    (top / "a.txt").write_text("changed\n")
    (top / "dir" / "staged.txt").write_text("staged\n")
    git("add", "dir/staged.txt", cwd=top)


def rename_and_mode(top: Path) -> None:
    git("mv", "a.txt", "renamed.txt", cwd=top)
    (top / "renamed.txt").chmod(0o755)
    (top / "b.bin").unlink()
    (top / "b.bin").symlink_to("renamed.txt")


def removed_from_index(top: Path) -> None:
    git("rm", "-q", "--cached", "a.txt", cwd=top)
    (top / "other" / "d.txt").unlink()


def file_becomes_folder(top: Path) -> None:
    (top / "a.txt").unlink()
    (top / "a.txt").mkdir()
    (top / "a.txt" / "inside.txt").write_text("inside\n")
    git("add", "a.txt", cwd=top)


def filtered(top: Path) -> None:
    """A required filter that keeps what it cleans elsewhere, as git-lfs does."""
    config(top, filter_lfs_clean="sha256sum | cut -c1-64", filter_lfs_required="true")
    (top / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (top / "b.bin").write_bytes(b"weights" * 1000)
    git("add", ".gitattributes", cwd=top)


def in_a_merge(top: Path) -> None:
    for branch, text in (("side", "side\n"), ("main", "main\n")):
        git("checkout", "-q", *(["-b"] if branch == "side" else []), branch, cwd=top)
        (top / "a.txt").write_text(text)
        git(*NOBODY, "commit", "-q", "-a", "-m", branch, cwd=top)
    with pytest.raises(AssertionError, match="merge side"):
        git(*NOBODY, "merge", "side", cwd=top)
    assert "<<<<<<<" in (top / "a.txt").read_text()


SHAPES = [
    sparse,
    intent_to_add,
    split_index,
    rename_and_mode,
    filtered,
    in_a_merge,
    *(
        pytest.param(shape, marks=pytest.mark.ci)
        for shape in (autocrlf, skip_worktree, assume_unchanged, removed_from_index, file_becomes_folder)
    ),
]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "clone"
    git("init", "-q", "-b", "main", str(made))
    for name, data in {"a.txt": b"one\n", "b.bin": b"\0\r\n", "dir/c.txt": b"c\n", "other/d.txt": b"d\n"}.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(data)
    git("add", "-A", cwd=made)
    git(*NOBODY, "commit", "-q", "-m", "first", cwd=made)
    return made


def entries(repository: Path, tree: str) -> list[str]:
    lines = git("ls-tree", "-r", "-t", "-z", "--full-tree", tree, cwd=repository).split("\0")
    return [line for line in lines if line and not line.partition("\t")[2].startswith(".mac-bridge")]


def sent_entries(top: Path, folder: Path, *, rev: str = "HEAD", dirty: bool = False) -> list[str]:
    """Send a request with the code of a clone, and return what lies on the remote then."""
    path, state = bare(folder / "bus.git"), folder / "state"
    open_bus(str(path), repository=None, state=folder / "maker", clock=CLOCK).create(
        new_record(CLOCK, wake="poll", local=True)
    )
    captured = capture(top, state=state, rev=rev, dirty=dirty)
    bus = open_bus(str(path), repository=top, state=state, clock=CLOCK)
    request = make_request(bus.identity().bus_id, "quick", workload=captured.workload)
    push(bus, request)
    return entries(path, request.ref)


@pytest.mark.parametrize("shape", SHAPES)
def test_uncommitted_changes_are_sent_as_git_would_commit_them(
    top: Path, tmp_path: Path, shape: Callable[[Path], None]
) -> None:
    shape(top)
    copy = tmp_path / "copy"
    shutil.copytree(top, copy, symlinks=True)
    index = (top / ".git" / "index").read_bytes()
    sent = sent_entries(top, tmp_path, dirty=True)
    subprocess.run(["git", *NOBODY, "commit", "-q", "--all", "--allow-empty", "-m", "x"], cwd=copy, check=True)
    assert sent == entries(copy, "HEAD")
    assert (top / ".git" / "index").read_bytes() == index


@pytest.mark.parametrize("rev", ["HEAD", "HEAD~1"])
def test_a_commit_is_sent_with_exactly_its_own_tree(top: Path, tmp_path: Path, rev: str) -> None:
    rename_and_mode(top)
    git(*NOBODY, "commit", "-q", "-a", "-m", "second", cwd=top)
    filtered(top)
    (top / "a.txt").write_text("not committed\n")
    assert sent_entries(top, tmp_path, rev=rev) == entries(top, rev)


def test_a_file_whose_name_begins_with_a_colon_is_sent_and_counted_as_one(top: Path, tmp_path: Path) -> None:
    for name in (":memory:", ":gone"):
        (top / name).write_text("first\n")
    git("add", "-A", cwd=top)
    git(*NOBODY, "commit", "-q", "-m", "databases", cwd=top)
    (top / ":memory:").write_text("changed\n")
    (top / ":gone").unlink()
    captured = capture(top, state=tmp_path / "state", dirty=True)
    assert (captured.files, captured.bytes, captured.workload.dirty) == (2, len("changed\n"), True)
