"""Put a run's folders where its user can go, when that is not where they were made.

Knows nothing about what runs there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.held_folders import held_folder, sweep
from bridge.executor.sandbox.user import closed_to, may_mount

_PREFIX: Final = "kakeya-run-"
_OPEN_TO_ALL: Final = Path("/var/tmp")  # noqa: S108 - the folder made there has a name of its own and belongs to us


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
        for folder in folders:
            shutil.move(folder, root / folder.name)
        yield RunDirectory(root, *(root / folder.name for folder in folders))


def sweep_run_folders() -> int:
    """Remove the folders of runs whose runner was killed; return how many went."""
    return sweep(_PREFIX, _OPEN_TO_ALL)
