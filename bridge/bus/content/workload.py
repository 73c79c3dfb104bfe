"""Capture what a clone would send as a workload: a commit's tree, or a snapshot of its tracked files as they are now.

The clone is read only: the snapshot is made with an index and an object folder of the bus's own, so branch, index,
work tree, stash and object folder of the clone stay as they are. Knows nothing about requests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.bus.content.checkout import Survey, survey
from bridge.bus.content.commits import FOLDER
from bridge.bus.store.git import StoreReader
from bridge.bus.store.interface import MissingObjectError
from bridge.bus.store.route import origin_of
from bridge.bus.store.user_clone import UserClone, read_clone
from bridge.errors import GitError, RequestRejectedError, UsageError
from bridge.limits import MIB
from bridge.records.request import Workload
from bridge.system.git import last_words, run_in_work_tree
from bridge.system.gitobjects import parse_commit, parse_tree, tree
from bridge.system.gitrepository import BareRepository, GitSettings, joined

TREE_BYTES_MAX: Final = 4 * MIB
UNSHALLOW: Final = "this clone has only its last commits: git fetch --unshallow, then repeat"
_OID_CHARS: Final = 40


@dataclass(frozen=True)
class Captured:
    """A workload, and what a snapshot adds to its commit.

    Attributes:
        workload: what a request names.
        files: tracked files that differ from the commit.
        bytes: their size now.
        submodules: folders that stay empty on the host.
        twins: pairs of paths that a host refuses whose file system takes them for one file.
    """

    workload: Workload
    files: int
    bytes: int
    submodules: tuple[str, ...] = ()
    twins: tuple[tuple[str, str], ...] = ()


def capture(repository: Path, *, state: Path, rev: str = "HEAD", dirty: bool = False) -> Captured:
    """Return the workload of a clone.

    Args:
        repository: the clone's work tree.
        state: the folder of the bus it will be sent to, as given to `bridge.bus.open_bus`.
        rev: a revision.
        dirty: take tracked files as they are in the work tree; `rev` must then be what is checked out.

    Raises:
        UsageError: no such revision, no work tree, uncommitted changes of another revision, or a clone that names its
            objects otherwise than a bus.
        RequestRejectedError: the tree holds what no host checks out.
        GitError: git failed.
    """
    clone = read_clone(repository)
    commit = resolve_commit(repository, rev)
    if len(commit) != _OID_CHARS:
        raise UsageError(
            f"{repository} names its objects by SHA-256, a bus by SHA-1: its code cannot be sent",
            remedy="presets that run the host's code work from here; kakeya-mac presets",
        )
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = BareRepository(state / "control.git", GitSettings(alternates=(clone.objects,)))
    store.create()
    with store.reader() as reader:
        committed = parse_commit(reader.read(commit, "commit", MIB)).tree
    files = size = 0
    sent = committed
    if dirty:
        if commit != resolve_commit(repository, "HEAD"):
            raise UsageError(f"--dirty sends the work tree, which is not at {rev!r}", remedy="leave out --ref")
        sent = _snapshot(repository, clone, store, state)
        files, size = _difference(repository, store, clone, committed, sent)
    bare = _without_folder(store, sent)
    surveyed = _survey(store, bare)
    return Captured(
        Workload(commit=commit, tree=bare, origin=origin_of(repository), dirty=sent != committed),
        files,
        size,
        () if surveyed is None else surveyed.submodules,
        () if surveyed is None else surveyed.twins,
    )


def _survey(store: BareRepository, tree_oid: str) -> Survey | None:
    """Return what a tree holds once it was found in order, None where a partial clone lacks part of it.

    Raises:
        RequestRejectedError: the tree holds what no host checks out.
    """
    try:
        with store.reader() as reader:
            return survey(StoreReader(reader), tree_oid, folds=False)
    except RequestRejectedError as error:
        if isinstance(error.__cause__, MissingObjectError):  # a partial clone without its work tree: its host will say
            return None
        raise


def resolve_commit(repository: Path, rev: str) -> str:
    """Return the full id of a revision of a clone.

    Raises:
        UsageError: there is no such commit here.
    """
    finished = run_in_work_tree(
        repository, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}"]
    )
    if finished.exit_code != 0:
        remedy = UNSHALLOW if is_shallow(repository) else "git log --oneline -5"
        raise UsageError(f"{rev!r} is no commit of {repository}", remedy=remedy)
    return finished.stdout.decode().strip()


def is_shallow(repository: Path) -> bool:
    """Say whether a clone was cut off behind its last commits, as many services of continuous integration make one."""
    return run_in_work_tree(repository, ["rev-parse", "--is-shallow-repository"]).stdout.strip() == b"true"


def is_ancestor(repository: Path, earlier: str, later: str) -> bool:
    """Say whether one commit of a clone is in the history of another."""
    return run_in_work_tree(repository, ["merge-base", "--is-ancestor", earlier, later]).exit_code == 0


def _snapshot(repository: Path, clone: UserClone, store: BareRepository, state: Path) -> str:
    """Return the tree of all tracked files as they are now."""
    descriptor, name = tempfile.mkstemp(prefix="index-", dir=state)
    os.close(descriptor)
    index = Path(name)
    try:
        if clone.index.exists():
            # With its time: what was written in the second of a commit, git compares by content, not by size and time.
            shutil.copy2(clone.index, index)
        else:
            index.unlink()
        environment = _apart(clone, store) | {"GIT_INDEX_FILE": name}
        top = _ask(repository, ["rev-parse", "--show-toplevel"], {})
        _ask(Path(top), ["add", "--update", "--", "."], environment)
        return _ask(Path(top), ["write-tree"], environment)
    finally:
        index.unlink(missing_ok=True)


def _difference(repository: Path, store: BareRepository, clone: UserClone, old: str, new: str) -> tuple[int, int]:
    """Return how many files differ, and the bytes of their new content."""
    if old == new:
        return 0, 0
    listed = _ask(
        repository, ["diff-tree", "-r", "--no-renames", "--diff-filter=d", "-z", old, new], _apart(clone, store)
    )
    removed = _ask(
        repository, ["diff-tree", "-r", "--no-renames", "--diff-filter=D", "-z", old, new], _apart(clone, store)
    )
    entries = [facts.split(" ") for facts in listed.split("\0")[:-1:2]]  # a path follows each, and may begin with ":"
    size = 0
    with store.reader() as reader:
        for entry in entries:
            if entry[1] != "160000":
                size += reader.size(entry[3])
    return len(entries) + removed.count("\0") // 2, size


def _apart(clone: UserClone, store: BareRepository) -> dict[str, str]:
    """The environment in which new objects go to the bus's repository and old ones are read from the clone."""
    return {
        "GIT_OBJECT_DIRECTORY": str(store.objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": joined([clone.objects]),
    }


def _without_folder(store: BareRepository, tree_oid: str) -> str:
    """Return the tree without `.mac-bridge`, which belongs to the request and never reaches a run."""
    with store.reader() as reader:
        entries = parse_tree(reader.read(tree_oid, "tree", TREE_BYTES_MAX))
    if all(entry.name != FOLDER for entry in entries):
        return tree_oid
    bare = tree(entry for entry in entries if entry.name != FOLDER)
    store.write([bare], durable=False)
    return bare.oid


def _ask(folder: Path, arguments: list[str], environment: dict[str, str]) -> str:
    finished = run_in_work_tree(folder, arguments, environment=environment)
    if finished.exit_code != 0:
        raise GitError(f"git {arguments[0]} failed in {folder}: {last_words(finished.stderr)}")
    return finished.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
