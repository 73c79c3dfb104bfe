"""Find git-lfs pointers in an untrusted tree, and decide whether their objects are fetched, left or refused.

Every file that begins like a pointer is treated as one: content decides which files are large, never the tree's own
`.gitattributes`, and the host decides where they come from, never the tree's `.lfsconfig`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal, Protocol

from bridge.errors import PolicyRefusedError, RequestRejectedError
from bridge.system.gitlfs import LfsObject

POINTER_MAX_BYTES: Final = 1024
_EMPTY: Final = hashlib.sha256().hexdigest()
_BEGINS: Final = b"version https://git-lfs.github.com/spec/"
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (0|[1-9][0-9]{0,17})\n?"
)
_EXTENSION = re.compile(rb"^ext-[0-9]+-", re.MULTILINE)


class LargeFiles(Protocol):
    """Where a host gets large files from."""

    @property
    def max_bytes(self) -> int:
        """What the large files of one tree may come to."""
        ...

    def fetch(self, objects: Sequence[LfsObject]) -> AbstractContextManager[Mapping[str, Path]]:
        """Download objects, verified, and keep their files, by oid, until the context ends.

        Raises:
            RequestRejectedError: there is no such object.
            InfrastructureError: it could not be fetched.
        """
        ...


Handling = LargeFiles | Literal["refuse", "leave"]


def pointer_in(path: str, data: bytes) -> LfsObject | None:
    """Return what a file points to, or None when it is no pointer.

    Raises:
        RequestRejectedError: it begins like a pointer and is none that is understood.
    """
    if len(data) > POINTER_MAX_BYTES or not data.startswith(_BEGINS):
        return None
    match = _POINTER.fullmatch(data)
    if match is None:
        why = "uses an LFS extension" if _EXTENSION.search(data) else "is a malformed LFS pointer"
        raise RequestRejectedError(f"workload file {path!r} {why}; expected version, oid sha256 and size alone")
    pointer = LfsObject(match[1].decode(), int(match[2]))
    if (pointer.size == 0) != (pointer.oid == _EMPTY):
        raise RequestRejectedError(f"workload file {path!r} is an LFS pointer whose size and oid contradict each other")
    return pointer


def check_handling(pointers: Mapping[str, LfsObject], handling: LargeFiles | Literal["refuse"]) -> LargeFiles:
    """Return where the objects of a tree come from, once it is sure that they may.

    Raises:
        PolicyRefusedError: the owner has named no server.
        RequestRejectedError: the objects are more than the owner allows.
    """
    total = sum(pointer.size for pointer in pointers.values())
    if handling == "refuse":
        path = next(iter(pointers))
        raise PolicyRefusedError(
            f"the workload holds {len(pointers)} git-lfs pointers ({path!r} first, {total} bytes in all) and this host "
            "has no LFS server to get them from",
            remedy='the host\'s owner, in policy.toml: [lfs] url = "https://…/info/lfs"; or leave_pointers = true to '
            "run with the pointers as they are",
        )
    if total > handling.max_bytes:
        raise RequestRejectedError(
            f"the workload's {len(pointers)} large files come to {total} bytes, this host takes {handling.max_bytes} "
            "([lfs] max_bytes in its policy)"
        )
    return handling
