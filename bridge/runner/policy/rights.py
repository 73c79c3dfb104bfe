"""Who else may read or change a file of the owner's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def file_problems(path: Path, *, private: bool = True) -> list[str]:
    """Return what keeps a file from being the owner's alone, an empty list when nothing does.

    Args:
        path: the file.
        private: whether others may not even read it; public keys anybody may read, but only the owner may change.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ["there is no such file"]
    if stat.S_ISDIR(found.st_mode):
        return ["it is a folder; expected a file"]
    problems = []
    if not stat.S_ISREG(found.st_mode):
        problems.append("it is not a regular file")
    uid = os.geteuid()
    roots = found.st_uid == 0 and uid != 0 and found.st_gid in {os.getegid(), *os.getgroups()}
    if found.st_uid != uid and not roots:
        problems.append(
            f"it belongs to uid {found.st_uid}, the runner is uid {uid}; expected that user, or root:runner"
        )
    if found.st_mode & ((0o037 if roots else 0o077) if private else 0o022):
        what = "read or change" if private else "change"
        wanted = "0640" if roots else "0600"
        problems.append(f"others may {what} it: mode {stat.S_IMODE(found.st_mode):04o}, expected {wanted}")
    problems += (text for parent in path.absolute().parents for text in _folder_problems(parent))
    return problems


def _folder_problems(folder: Path) -> Iterator[str]:
    """Yield what lets others replace what lies below a folder."""
    found = folder.stat()
    mode = found.st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        yield f"others may replace it: its folder {folder} has mode {stat.S_IMODE(mode):04o}"
    if found.st_uid not in {0, os.geteuid()}:
        yield f"others may replace it: its folder {folder} belongs to uid {found.st_uid}"
