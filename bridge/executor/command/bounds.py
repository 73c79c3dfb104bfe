"""The bounds of one run, checked from outside several times a second.

Knows nothing about how a process is stopped. The kernel's own bounds (`rlimits`) stand behind the sampled ones, wider,
so that the sampled one is the reason a person reads whenever sampling is fast enough.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import psutil

from bridge.durations import duration_text, measured_text
from bridge.executor.command.disk_use import DiskUse, disk_use, free_bytes
from bridge.executor.interface import Ending
from bridge.executor.observe.machine_state import suspended_s
from bridge.executor.processes.tree import Usage
from bridge.limits import MIB, RUN_DISK_FLOOR_BYTES, TASKS_FLOOR_COUNT, TASKS_PER_CORE_COUNT, TREE_MAX_ENTRIES
from bridge.records.jobspec import Limits
from bridge.records.run import LimitHit
from bridge.system.clock import Clock

_NVIDIA_CONTROL: Final = "/dev/nvidiactl"
_DISK_EVERY_S: Final = 0.5
_DISK_EFFORT: Final = 10  # a look at the disk may take at most a tenth of the time between looks
_OTHERS_TASKS_COUNT: Final = 1024  # threads that other programs of the same user may start while a run goes on


@dataclass(frozen=True)
class Stop:
    """Why a run must end.

    Attributes:
        graceful: whether TERM comes first; a bound on what the host loses meanwhile goes straight to KILL.
    """

    ending: Ending
    message: str
    hit: LimitHit | None
    graceful: bool


def rlimits(limits: Limits, uid: int) -> dict[str, int]:
    """Return the kernel's per-process bounds that stand behind the sampled ones, for a run as this user."""
    bounds = {
        # With 0 a core pattern that is a pipe still starts its program, as root; with 1 it does not (Linux coredump.c).
        "RLIMIT_CORE": 1,
        "RLIMIT_NOFILE": limits.open_files,
        # Counts threads, and everything else this user runs; left out where a control group counts the run's own.
        "RLIMIT_NPROC": _threads_of(uid) + _OTHERS_TASKS_COUNT + tasks_in_kernel(limits),
        "RLIMIT_FSIZE": limits.output_bytes + limits.output_bytes // 4 + MIB,
    }
    if not Path(_NVIDIA_CONTROL).exists():
        # Private writable memory, not address space, of which array libraries reserve far more than they use.
        # What CUDA maps as such without using it is not known to us, so its hosts have the sampled bound alone.
        bounds["RLIMIT_DATA"] = limits.memory_bytes + limits.memory_bytes // 4
    if limits.cpu_s is not None:
        bounds["RLIMIT_CPU"] = int(limits.cpu_s) + 2
    return bounds


def tasks_bound(limits: Limits) -> int:
    """Return how many threads a run may have together; this machine's default where its spec says nothing."""
    if limits.tasks is not None:
        return limits.tasks
    return max(TASKS_FLOOR_COUNT, TASKS_PER_CORE_COUNT * (os.cpu_count() or 1))


def tasks_in_kernel(limits: Limits) -> int:
    """Return the kernel's own bound behind it, wider, so that the sampled one is what a person reads."""
    bound = tasks_bound(limits)
    return bound + bound // 4 + 8  # the wrapping programs' own


def _threads_of(uid: int) -> int:
    """Return how many threads a user runs now, as far as we can see."""
    if sys.platform != "linux":
        return sum(process.num_threads() for process in _processes_of(uid))
    total = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if entry.stat().st_uid == uid:
                    # proc(5): num_threads is field 20; the name before it may hold anything.
                    total += int(Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[17])
    return total


def _processes_of(uid: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == uid:
                yield process


class Bounds:
    """Time, processor, memory, processes and disk of one run against its limits."""

    def __init__(
        self,
        limits: Limits,
        root: Path,
        clock: Clock,
        free: Callable[[Path], int] = free_bytes,
        asleep_s: Callable[[], float | None] = suspended_s,
    ) -> None:
        """Start the run's time and look at what is in its directories already.

        Args:
            limits: the bounds.
            root: the run's directory.
            clock: measures time.
            free: returns the free bytes of a path's file system.
            asleep_s: returns how long the machine has slept since it started; None where it does not say.
        """
        self.limits = limits
        self._root = root
        self._clock = clock
        self._free = free
        self._asleep_s = asleep_s
        self._start_s = clock.steady_s()
        self._active_s = self._start_s
        self._asleep_at_start_s = self._asleep_at_active_s = self._slept_s()
        self._cpu_before_s = 0.0
        self._disk_at_s = self._start_s + _DISK_EVERY_S
        self._disk_before = disk_use(root, stop_at_files=4 * TREE_MAX_ENTRIES)
        self._disk_last, self._disk_last_s = self._disk_before, self._start_s
        self._free_before = free(root)

    def elapsed_s(self) -> float:
        """Return the seconds since the run's start."""
        return max(0.0, self._clock.steady_s() - self._start_s)

    def active(self) -> None:
        """Note a sign of life."""
        self._active_s = self._clock.steady_s()
        self._asleep_at_active_s = self._slept_s()

    def _slept_s(self) -> float:
        return self._asleep_s() or 0.0

    def command_ended(self, cpu_s: float) -> None:
        """Add an ended command's processor time to the run's."""
        self._cpu_before_s += cpu_s

    def check(
        self, usage: Usage, should_stop: Callable[[], Literal["cancelled", "interrupted", "left"] | None]
    ) -> Stop | None:
        """Return why the run must end now, or None; the most informative reason first."""
        reason = should_stop()
        if reason is not None and reason != "left":
            return Stop(reason, f"the run was {reason}", None, graceful=True)
        now_s = self._clock.steady_s()
        limits, slept_s = self.limits, self._slept_s() - self._asleep_at_active_s
        cpu_s = self._cpu_before_s + usage.cpu_s
        checks: tuple[tuple[str, float, float, Ending], ...] = (
            ("memory_bytes", limits.memory_bytes, usage.rss_bytes, "limit"),
            ("processes", limits.processes, usage.processes, "limit"),
            ("tasks", tasks_bound(limits), usage.tasks, "limit"),
            ("cpu_s", float("inf") if limits.cpu_s is None else limits.cpu_s, cpu_s, "limit"),
            ("wall_s", limits.wall_s, now_s - self._start_s, "timed_out"),
            # A machine that sleeps lets no program show a sign of life; the time a requester waits goes on.
            ("inactivity_s", limits.inactivity_s, now_s - self._active_s - slept_s, "timed_out"),
        )
        for name, bound, observed, ending in checks:
            if observed > bound:
                slept_s = self._slept_s() - self._asleep_at_start_s if name == "wall_s" else 0.0
                return _over(name, bound, observed, ending, slept_s)
        return self._check_disk(now_s)

    def _check_disk(self, now_s: float) -> Stop | None:
        if now_s < self._disk_at_s:
            return None
        use = self._disk_use()
        stop = self._judge_disk(use)
        took_s = self._clock.steady_s() - now_s
        # A run that fills its directories quickly is looked at again when it will have, however long a look takes.
        calm_s = took_s + max(_DISK_EVERY_S, _DISK_EFFORT * took_s)
        self._disk_at_s = now_s + max(took_s, min(calm_s, self._until_full_s(use, now_s)))
        self._disk_last, self._disk_last_s = use, now_s
        return stop

    def _until_full_s(self, use: DiskUse, now_s: float) -> float:
        """Return the seconds until a bound is met at the growth since the last look."""
        since_s, before, last = now_s - self._disk_last_s, self._disk_before, self._disk_last
        rooms = (
            (use.files - last.files, before.files + self.limits.output_files - use.files),
            (use.bytes - last.bytes, before.bytes + self.limits.output_bytes - use.bytes),
        )
        return min((room * since_s / grown for grown, room in rooms if grown > 0), default=math.inf)

    def _disk_use(self, *, open_up: bool = False) -> DiskUse:
        most = self._disk_before.files + self.limits.output_files
        return disk_use(self._root, stop_at_files=most, open_up=open_up)

    def disk(self, stop: Stop | None = None) -> Stop | None:
        """Return why the run ends, or None, now that no process of its command is there.

        Only now is seen what a living run can hide: what lies in folders that it closed to its own user, and files
        without a name, whose room the kernel gives back with the last process that has them open.

        Args:
            stop: what ended the command.
        """
        if stop is not None and (stop.ending != "killed" or stop.hit is None):
            return stop
        use = self._disk_use(open_up=True)
        if stop is None or stop.hit is None:
            return self._judge_disk(use)
        free_then = int(stop.hit.observed)
        own = max(0, use.bytes - self._disk_before.bytes) + max(0, self._free(self._root) - free_then)
        if 2 * own < self._free_before - free_then:
            return stop
        words = f"only {free_then} bytes were free where the run writes, and the run itself held {own} bytes"
        return replace(stop, ending="limit", message=words)

    def _judge_disk(self, use: DiskUse) -> Stop | None:
        grown = use.bytes - self._disk_before.bytes
        if grown > self.limits.output_bytes:
            return _over("output_bytes", self.limits.output_bytes, grown, "limit")
        if use.path_bytes:
            most = os.pathconf(self._root, "PC_PATH_MAX")
            hit = LimitHit(limit="path_bytes", bound=most, observed=use.path_bytes, action="killed")
            message = f"a path has {use.path_bytes:,} bytes, and nothing can be counted from {most:,} on"
            return Stop("limit", message, hit, graceful=False)
        if not use.complete:
            return _over("output_files", self.limits.output_files, use.files - self._disk_before.files, "limit")
        free = self._free(self._root)
        if free < RUN_DISK_FLOOR_BYTES:
            hit = LimitHit(limit="disk_free_bytes", bound=RUN_DISK_FLOOR_BYTES, observed=free, action="killed")
            words = f"only {free} bytes are free where the run writes"
            if 2 * grown < self._free_before - free:
                words = f"{words}: others of this host took most of it, the run {max(0, grown)} bytes"
                return Stop("killed", words, hit, graceful=False)
            return Stop("limit", words, hit, graceful=False)
        return None

    def explain(self, number: int | None, peak_rss_bytes: int, kernel_hits: dict[str, int]) -> Stop | None:
        """Return the bound behind an ending that the kernel brought about, or None.

        Args:
            number: the signal that ended the command.
            peak_rss_bytes: the most memory seen.
            kernel_hits: what the cgroup counted.
        """
        if number == signal.SIGXCPU and self.limits.cpu_s is not None:
            return _over("cpu_s", self.limits.cpu_s, self.limits.cpu_s, "limit")
        if number == signal.SIGXFSZ:
            return _over("output_bytes", self.limits.output_bytes, self.limits.output_bytes, "limit")
        if kernel_hits.get("tasks", 0):
            return _over("tasks", tasks_bound(self.limits), tasks_in_kernel(self.limits), "limit")
        if kernel_hits.get("memory", 0) or peak_rss_bytes > self.limits.memory_bytes:
            return _over("memory_bytes", self.limits.memory_bytes, peak_rss_bytes, "limit")
        return None


def _over(name: str, bound: float, observed: float, ending: Ending, slept_s: float = 0.0) -> Stop:
    hit = LimitHit(limit=name, bound=float(bound), observed=float(observed), action="killed")
    what, _, unit = name.rpartition("_")
    value, most = (
        (measured_text(observed), measured_text(bound)) if unit == "s" else (f"{observed:,.0f} {unit}", f"{bound:,.0f}")
    )
    message = f"{what or name} limit reached: {value}, at most {most} (limits.{name})"
    message += f"; the machine slept for {duration_text(slept_s)} of it" if slept_s >= 1.0 else ""
    return Stop(ending, message, hit, graceful=ending == "timed_out")
