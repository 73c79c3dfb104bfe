"""Find and kill the processes of a command from outside, also when its subreaper is gone.

A member descends from the subreaper, was seen as a descendant earlier (id and start time), or carries the marker in its
environment; on macOS also by its coalition and its sandbox. Knows nothing about jobs. Never touches this process or its
ancestors.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from bridge.executor.processes.cgroup import Cgroup
from bridge.executor.processes.coalition import strays
from bridge.executor.processes.subreaper import is_subreaper
from bridge.system.clock import SystemClock

MARKER_NAME: Final = "KAKEYA_MARKER"
_KILL_S: Final = 10.0
_CLOCK: Final = SystemClock()
_SEEN_SLACK_S: Final = 0.05
_RECORDED_SLACK_S: Final = 2.0  # the boot time that start times are relative to is rounded to a second


@dataclass(frozen=True)
class Usage:
    """Memory, processor time and number of the processes of a tree at one moment.

    Attributes:
        cpu_s: processor time of all its members so far, dead ones included.
        tasks: threads of all its members; as many as members where those were only counted.
        pids: every member ever seen, for meters that tell the work of a process.
    """

    processes: int
    rss_bytes: int
    cpu_s: float
    tasks: int = 0
    pids: frozenset[int] = frozenset()


@dataclass
class ProcessTree:
    """A subreaper's descendants as seen so far.

    Attributes:
        seen: start time of every member ever seen, by process id.
        cpu_s: processor time of all members so far, dead ones included.
        since: when it began, in seconds since the epoch; on macOS a process that nobody holds is no older.
    """

    root: int
    marker: str
    start_times: dict[int, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    since: float = field(default_factory=lambda: _CLOCK.now().timestamp())

    def members(self) -> list[psutil.Process]:
        """Return the living descendants of the root, and remember them."""
        try:
            processes = psutil.Process(self.root).children(recursive=True)
        except psutil.Error:
            return []
        return self._remember(processes)

    def _members_now(self) -> list[psutil.Process]:
        """Return them at a cost that grows with the tree and not with the machine; one that moves may be missed."""
        pids = _below(self.root)
        if pids is None:
            return self.members()
        processes = []
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                processes.append(psutil.Process(pid))
        return self._remember(processes)

    def _remember(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        for process in processes:
            self.start_times[process.pid] = process.create_time()
        return processes

    def usage(self, *, memory_bound: int, processes_bound: int) -> Usage:
        """Measure the living members; pages they share count once when counting them often would break the bound.

        To count pages once takes a second where there are millions, so it is not asked where one member's own break it.
        Too many members are only counted: measuring a tree that doubles every few milliseconds would let it grow on.
        """
        members = self._members_now()
        if len(members) > processes_bound:
            return Usage(len(members), 0, self.cpu_s, len(members), frozenset(self.start_times))
        rss = tasks = most_own = 0
        # The dead count too: whoever collected them has their time, and the root collects the orphans.
        cpu_s = self._collected_s()
        for process in members:
            with contextlib.suppress(psutil.Error), process.oneshot():
                memory = process.memory_info()
                rss += memory.rss
                most_own = max(most_own, memory.rss - getattr(memory, "shared", memory.rss))
                tasks += process.num_threads()
                times = process.cpu_times()
                cpu_s += times.user + times.system + times.children_user + times.children_system
        self.cpu_s = max(self.cpu_s, cpu_s)
        if most_own <= memory_bound < rss:
            rss = min(rss, _shared_once(members))
        return Usage(len(members), rss, self.cpu_s, tasks, frozenset(self.start_times))

    def _collected_s(self) -> float:
        """Return the processor time of the dead that the root has collected."""
        try:
            times = psutil.Process(self.root).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.children_user + times.children_system)

    def leftovers(self) -> list[psutil.Process]:
        """Return everybody alive who belongs to the tree by any of the three ways, without the root itself."""
        candidates = {process.pid: process for process in self.members()}
        for pid, started in self.start_times.items():
            if pid not in candidates and (process := same_process(pid, started, _SEEN_SLACK_S)) is not None:
                candidates[pid] = process
        for process in marked(self.marker):
            candidates.setdefault(process.pid, process)
        for process in strays(self.since):
            candidates.setdefault(process.pid, process)
        candidates.pop(self.root, None)
        return [process for process in candidates.values() if alive(process)]


def adopted(since: float, keepers: Collection[int]) -> list[psutil.Process]:
    """Return what came to this process when a subreaper of its was killed: they and their descendants.

    Orphans come to the nearest subreaper above them (prctl(2), PR_SET_CHILD_SUBREAPER): nobody comes to a process that
    is none, such as a runner that tries its sandbox beside its own git. A subreaper starts nothing in another session
    but the commands' subreapers.

    Args:
        since: when the command's subreaper began, in seconds since the epoch; whoever is older is nobody's orphan.
        keepers: ids of the subreapers that this process has started.
    """
    if not is_subreaper():
        return []
    session = os.getsid(0)
    orphans: list[psutil.Process] = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error, OSError):
            newer = process.create_time() >= since - _SEEN_SLACK_S
            if process.pid not in keepers and newer and os.getsid(process.pid) != session:
                orphans += [process, *process.children(recursive=True)]
    return [process for process in orphans if alive(process)]


def _below(root: int) -> list[int] | None:
    """Return the ids of a process's descendants, each thread's children read one after the other; None off Linux.

    proc_pid_task(5): `children` may leave one out whose sibling ends meanwhile, so killing never relies on it.
    """
    if not Path("/proc/self/task", str(os.getpid()), "children").exists():
        return None
    pids = [root]
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.scandir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    pids += [int(child) for child in Path(task.path, "children").read_bytes().split()]
    return pids[1:]


def _shared_once(members: Iterable[psutil.Process]) -> int:
    """Return the memory of these processes with shared pages divided among their users, where the platform tells.

    One that lets nobody look at its pages (prctl(2), PR_SET_DUMPABLE), or whose user we may not trace, counts whole;
    one of which the system tells nothing, as a Mac of what is set-uid root, counts for nothing.
    """
    total = 0
    for process in members:
        with contextlib.suppress(psutil.Error):
            try:
                full = process.memory_full_info()
                total += int(getattr(full, "pss", full.rss))
            except psutil.AccessDenied:
                total += process.memory_info().rss
    return total


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return bool(process.is_running()) and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def same_process(pid: int, started: float, slack_s: float) -> psutil.Process | None:
    """Return the living process with this id that started at this time (seconds since the epoch), or None."""
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - started) <= slack_s and alive(process) else None
    except psutil.Error:
        return None


def marked(marker: str) -> list[psutil.Process]:
    """Return all processes that carry the marker in their environment, as far as we may look."""
    needle = f"{MARKER_NAME}={marker}".encode()
    return _marked_linux(needle) if Path("/proc/self/environ").exists() else _marked_elsewhere(marker)


def _marked_elsewhere(marker: str) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARKER_NAME) == marker:
                processes.append(process)
    return processes


def _marked_linux(needle: bytes) -> list[psutil.Process]:
    """Scan /proc/*/environ; on Linux this is several times faster than going through psutil."""
    processes = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, psutil.Error):
                if needle in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    processes.append(psutil.Process(int(entry.name)))
    return processes


def processes_of(uid: int) -> int:
    """Return how many processes of a user are alive, as far as we may look, without this one."""
    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            count += process.pid != os.getpid() and process.uids().real == uid and alive(process)
    return count


def kill_until_gone(find: Callable[[], Iterable[psutil.Process]], within_s: float = _KILL_S) -> tuple[int, int]:
    """Kill whoever `find` returns, again and again until it returns nobody twice in a row.

    Returns:
        How many different processes were killed, and how many were still there when the time was up.
    """
    spared = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    killed: set[tuple[int, float]] = set()
    deadline = _CLOCK.steady_s() + within_s
    quiet = 0
    while True:
        targets = [process for process in find() if process.pid not in spared]
        # Stopped first, so that nobody forks while the others are being killed.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in targets:
                with contextlib.suppress(psutil.Error, OSError):
                    process.send_signal(number)
        killed.update((process.pid, process.create_time()) for process in targets)
        quiet = 0 if targets else quiet + 1
        if quiet == 2 or _CLOCK.steady_s() >= deadline:
            return len(killed), len(targets)
        _CLOCK.sleep(0.002)


def kill_leftovers(pid: int, started: float, marker: str) -> int:
    """Kill what is left of a command whose runner died: by control group, id and start time, descent, marker.

    Returns:
        How many processes were killed.
    """
    tree = ProcessTree(pid, marker, since=started)

    def find() -> list[psutil.Process]:
        root = same_process(pid, started, _RECORDED_SLACK_S)
        if root is None:
            return [process for process in marked(marker) if alive(process)]
        return [*tree.leftovers(), root]

    groups = Cgroup.leftovers(marker)
    inside = {member for group in groups for member in group.members()}
    outside = {process.pid for process in find()} - inside
    for group in groups:
        group.remove()
    killed, _left = kill_until_gone(find)
    return len(inside) + max(killed, len(outside))
