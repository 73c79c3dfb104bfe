"""Make temporary folders that are locked while in use, move runs into them, and remove those of killed processes.

The kernel drops the lock with the process, so no folder is judged by its age. Only folders that are certainly ours are
removed: our name, our user, no link.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.executor.interface import RunDirectory
from bridge.executor.removal import remove_tree
from bridge.executor.sandbox.user import closed_to, may_mount

_PREFIX: Final = "kakeya-run-"
_OPEN_TO_ALL: Final = Path("/var/tmp")  # noqa: S108 - the folder made there has a name of its own and belongs to us


@contextmanager
def held_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """Yield a new private folder, locked while the block lasts and removed at its end."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        descriptor = _lock(folder)
        if descriptor is not None:
            break
        remove_tree(folder)  # another start swept it between its creation and our lock
    try:
        yield folder
    finally:
        remove_tree(folder)
        os.close(descriptor)


def sweep(prefix: str, parent: Path, before: Callable[[Path], None] = lambda _: None) -> int:
    """Remove the folders that killed processes of this user left; return how many went.

    What cannot be removed stays: a start does not fail because of an earlier one.

    Args:
        prefix: how their names begin.
        parent: where they are.
        before: called with each folder, whose lock is held, before it goes.
    """
    name = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
    try:
        folders = [parent / entry.name for entry in os.scandir(parent) if name.fullmatch(entry.name)]
    except OSError:
        return 0
    return sum(_remove_unheld(path, before) for path in folders)


def _remove_unheld(path: Path, before: Callable[[Path], None]) -> bool:
    descriptor = _lock(path)
    if descriptor is None:
        return False
    try:
        before(path)
        return remove_tree(path)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds a folder's lock, or None where another process holds it or it is not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = os.fstat(descriptor)
        if facts.st_uid == os.geteuid() and os.path.samestat(facts, path.lstat()) and stat.S_ISDIR(facts.st_mode):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


@contextmanager
def within_reach(directory: RunDirectory, uid: int) -> Iterator[RunDirectory]:
    """Yield the run's folders, moved for as long as the block lasts where their user could not come to them.

    Where we may mount, the subreaper opens the way instead, and nothing moves.
    """
    folders = (directory.work, directory.out, directory.home, directory.tmp)
    if uid == os.getuid() or not closed_to(uid, map(str, folders)) or may_mount():
        yield directory
        return
    with held_folder(_PREFIX, _OPEN_TO_ALL) as root:
        root.chmod(0o711)
        # By the same names as before: a result says where its run was started, and the gate asks for its own folder.
        moved = root / directory.root.parent.name / directory.root.name
        moved.mkdir(parents=True)
        for folder in (moved.parent, moved):
            folder.chmod(0o711)
        for folder in folders:
            shutil.move(folder, moved / folder.name)
        yield RunDirectory(moved, *(moved / folder.name for folder in folders))


def sweep_run_folders() -> int:
    """Remove the folders of runs whose runner was killed; return how many went."""
    return sweep(_PREFIX, _OPEN_TO_ALL)
