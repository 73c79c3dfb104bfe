"""Whether a folder lies on a disk of this machine's own, or on one that other machines share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"})
_MOUNTS: Final = Path("/proc/self/mountinfo")


def is_local(folder: Path) -> bool:
    """Return whether a folder's disk is known to be this machine's own; where nobody can tell it is not."""
    place, kind = "", ""
    with suppress(OSError):
        for line in _MOUNTS.read_text("utf-8", "replace").splitlines():  # see proc(5)
            words, _, after = line.partition(" - ")
            point = words.split()[4].encode().decode("unicode_escape")
            inside = folder.resolve().is_relative_to(point)
            if inside and len(point) >= len(place):
                place, kind = point, after.split()[0]
    return kind in _LOCAL
