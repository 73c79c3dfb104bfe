"""Remove what a run left, however deep its folders lie; `shutil.rmtree` needs a call and a descriptor for each level.

Knows nothing about runs. No link is followed.
"""

from __future__ import annotations

import itertools
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(root: Path) -> bool:
    """Remove a folder and all that is in it; return whether it is gone. What cannot be removed stays."""
    with suppress(OSError):
        _open_up(root)
        top = os.open(root, _FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        root.rmdir()
    return not os.path.lexists(root)


def _empty(top: int) -> None:
    """Empty an open folder: each one below is emptied at its first level, to which the folders in it are moved."""
    waiting = _unlink_files(top)
    names = (f"moved-{secrets.token_hex(8)}-{number}" for number in itertools.count())
    while waiting:
        name = waiting.pop()
        with suppress(OSError):
            _open_up(name, top)
            folder = os.open(name, _FOLDER, dir_fd=top)
            try:
                for inner, moved in zip(_unlink_files(folder), names, strict=False):
                    with suppress(OSError):
                        _open_up(inner, folder)
                        os.rename(inner, moved, src_dir_fd=folder, dst_dir_fd=top)
                        waiting.append(moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _unlink_files(folder: int) -> list[str]:
    """Remove everything in an open folder but the folders; return their names."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    folders = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            with suppress(OSError):
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _open_up(name: str | Path, parent: int | None = None) -> None:
    """Let a folder's owner into it; root needs no leave, and a link in its place could lead root astray."""
    if os.geteuid() != 0 and stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.chmod(name, 0o700, dir_fd=parent)
