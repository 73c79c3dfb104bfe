"""Read how much the processes of a launch worked: processor time, and time in a run queue.

Processor time alone lets a busy neighbour make a hard-working arm look idle; what waited for a processor worked too.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from bridge.executor.processes.subreaper import descendants

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc/self/task")
LINUX: Final = "/proc: stat of each process, schedstat of each thread"
ELSEWHERE: Final = "psutil: processor time of each process; run-queue wait unseen"


@dataclass(frozen=True)
class Work:
    """Seconds of a tree's processes so far.

    Attributes:
        cpu_s: by process, its collected children included.
        waited_s: by thread; None where the platform does not say.
    """

    cpu_s: dict[int, float] = field(default_factory=dict)
    waited_s: dict[int, float] | None = None


def read(root: int) -> Work:
    """Return what the living descendants of a process have worked so far."""
    return _linux([pid for pid, _depth in descendants(root)]) if PROC.exists() else _elsewhere(root)


def members(root: int) -> frozenset[int]:
    """Return the ids of the living descendants of a process."""
    if PROC.exists():
        return frozenset(pid for pid, _depth in descendants(root))
    with contextlib.suppress(psutil.Error):
        return frozenset(process.pid for process in psutil.Process(root).children(recursive=True))
    return frozenset()


def _elsewhere(root: int) -> Work:
    cpu_s: dict[int, float] = {}
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(root).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s[process.pid] = times.user + times.system
    return Work(cpu_s)


def between(before: Work, after: Work) -> tuple[float, float | None]:
    """Return processor seconds and run-queue seconds between two readings.

    A process that ended meanwhile counts where its parent collected it; the wait of a thread that ended is not seen.
    """
    cpu_s = _grown(before.cpu_s, after.cpu_s)
    if before.waited_s is None or after.waited_s is None:
        return cpu_s, None
    return cpu_s, _grown(before.waited_s, after.waited_s)


def _grown(before: dict[int, float], after: dict[int, float]) -> float:
    return sum(max(0.0, seconds - before.get(key, 0.0)) for key, seconds in after.items())


def _linux(pids: list[int]) -> Work:
    cpu_s: dict[int, float] = {}
    waited_s: dict[int, float] = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            # proc(5): utime, stime, cutime, cstime are fields 14 to 17; the name before them may hold anything.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            cpu_s[pid] = sum(int(ticks) for ticks in fields[11:15]) / _TICKS_S
            for task in os.scandir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    waited_s[int(task.name)] = int(Path(task.path, "schedstat").read_bytes().split()[1]) / 1e9
    return Work(cpu_s, waited_s)
