"""Find what a run on macOS left behind although it forked twice and emptied its environment.

macOS has neither subreapers nor control groups: between two looks such a process becomes launchd's child and carries no
marker. Three things stay with it: the coalition of the job that started us, which no process can leave; the sandbox of
its run, which no process can lift; and its start, after the run's. Structures and numbers are those of Darwin's
sys/proc_info.h and of libsandbox's sandbox_check; never tried on a Mac. Elsewhere neither library is there, and nobody
is found. Knows nothing about jobs.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import psutil

_COALITION_INFO: Final = 20  # PROC_PIDCOALITIONINFO
_COALITION: Final = struct.Struct("=2Q3Q")  # resource and jetsam coalition, then what is reserved
_LAUNCHD: Final = 1


@functools.cache
def _library(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def coalition_of(pid: int) -> int | None:
    """Return the number of the resource coalition of a process; None where the platform does not say."""
    library = _library("/usr/lib/libproc.dylib")
    if library is None:
        return None
    buffer = ctypes.create_string_buffer(_COALITION.size)
    size = library.proc_pidinfo(pid, _COALITION_INFO, 0, buffer, _COALITION.size)
    return int(_COALITION.unpack(buffer.raw)[0]) if size == _COALITION.size else None


def is_sandboxed(pid: int) -> bool:
    """Return whether a process is confined by a sandbox profile."""
    library = _library("/usr/lib/libsandbox.1.dylib")
    return library is not None and int(library.sandbox_check(pid, None, 0)) == 1


def strays(
    since: float,
    processes: Callable[[], Iterable[psutil.Process]] = psutil.process_iter,
    coalition: Callable[[int], int | None] = coalition_of,
    sandboxed: Callable[[int], bool] = is_sandboxed,
) -> list[psutil.Process]:
    """Return processes of our coalition and user that nobody holds, in a sandbox, and younger than a moment.

    Args:
        since: seconds since the epoch; what is older belongs to somebody else.
        processes: returns all there are.
        coalition: returns the coalition of a process.
        sandboxed: returns whether one is confined.
    """
    own = coalition(os.getpid())
    if own is None:
        return []
    left: list[psutil.Process] = []
    for process in processes():
        with suppress(psutil.Error):
            if (
                process.create_time() >= since
                and process.ppid() == _LAUNCHD
                and process.uids().real == os.getuid()
                and coalition(process.pid) == own
                and sandboxed(process.pid)
            ):
                left.append(process)
    return left
