"""Find what a run without a sandbox leaves in shared memory, which no end of a process frees; remove it where it may.

A sandbox has an IPC namespace and a /dev/shm of its own. Without one, files in /dev/shm and System V objects outlive
the run and take memory. What is new and belongs to the run's user is the run's, as long as nobody else is that user;
where somebody is, it is only named.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SHM: Final = Path("/dev/shm")  # noqa: S108 - looked at, and only what is the run's is removed
_NUMBERS: Final = {"shm": "shmid", "sem": "semid", "msg": "msqid"}
_IPC_RMID: Final = 0
_NAMED_MAX: Final = 20


@dataclass(frozen=True, order=True)
class SharedObject:
    """One object: a file of /dev/shm by its name, or a System V object by its number.

    Attributes:
        kind: ``file``, ``shm``, ``sem`` or ``msg``.
        key: inode of a file, number of the others: a name may be used anew.
    """

    kind: str
    name: str
    key: int


def objects_of(uid: int) -> frozenset[SharedObject]:
    """Return what a user has in shared memory; nothing where the platform does not list it."""
    if sys.platform != "linux":
        return frozenset()
    objects: set[SharedObject] = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(_SHM):
            with contextlib.suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if facts.st_uid == uid:
                    objects.add(SharedObject("file", entry.name, facts.st_ino))
    for kind in _NUMBERS:
        objects |= _listed(kind, uid)
    return frozenset(objects)


def _listed(kind: str, uid: int) -> set[SharedObject]:
    """Read /proc/sysvipc; its columns differ by kind and are named in its first line."""
    objects: set[SharedObject] = set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        head, *lines = Path("/proc/sysvipc", kind).read_text(encoding="ascii").splitlines()
        columns = head.split()
        for line in lines:
            row = dict(zip(columns, line.split(), strict=False))
            if int(row["uid"]) == uid:
                objects.add(SharedObject(kind, row[_NUMBERS[kind]], int(row[_NUMBERS[kind]])))
    return objects


def sweep(before: Iterable[SharedObject], uid: int, others: Callable[[int], int]) -> list[str]:
    """Remove what a user has in shared memory now and had not before; return a line for the log if there was anything.

    Args:
        before: what there was when the run began.
        uid: the run's user.
        others: returns how many processes of a user are alive; every process of the run is dead.
    """
    left = sorted(objects_of(uid) - frozenset(before))
    if not left:
        return []
    named = ", ".join(f"{shared_object.kind} {shared_object.name}" for shared_object in left[:_NAMED_MAX]) + (
        " ..." if left[_NAMED_MAX:] else ""
    )
    if others(uid):
        return [f"left in shared memory, and not removed because others are user {uid} too: {named}"]
    removed = sum(_remove(shared_object) for shared_object in left)
    return [f"left in shared memory: {named}; {removed} of {len(left)} removed"]


def _remove(shared_object: SharedObject) -> bool:
    if shared_object.kind == "file":
        try:
            path = _SHM / shared_object.name
            if path.lstat().st_ino != shared_object.key:
                return False
            path.unlink()
        except OSError:
            return False
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    match shared_object.kind:
        case "shm":
            return bool(libc.shmctl(shared_object.key, _IPC_RMID, None) == 0)
        case "sem":
            return bool(libc.semctl(shared_object.key, 0, _IPC_RMID) == 0)
        case _:
            return bool(libc.msgctl(shared_object.key, _IPC_RMID, None) == 0)
