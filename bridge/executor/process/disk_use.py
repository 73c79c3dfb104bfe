"""How much a run has put into its directories, looked at from outside and bounded in effort.

Knows nothing about the bounds themselves.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DiskUse:
    """Files and allocated bytes below a directory; `complete` is False when the count stopped at its own bound."""

    files: int
    bytes: int
    complete: bool = True


def disk_use(root: Path, *, stop_at_files: int) -> DiskUse:
    """Count entries and bytes below a directory without following links; stop early when there are too many.

    A sparse file counts with what it occupies; a file that vanishes while being counted does not count.
    """
    files = size = 0
    pending = [os.fspath(root)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files > stop_at_files:
                        return DiskUse(files, size, complete=False)
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        else:
                            size += entry.stat(follow_symlinks=False).st_blocks * 512
                    except OSError:
                        continue
        except OSError:
            continue
    return DiskUse(files, size)


def free_bytes(path: Path) -> int:
    """Return how many bytes an ordinary user may still write to this file system."""
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize
