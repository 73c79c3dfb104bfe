"""Run one command under a subreaper: read its log, hold it to its bounds, kill every process it started.

Knows nothing about sandboxes (it is given a complete command line), reports or host facts. One thread, one loop; every
wait is bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from bridge.executor.command.bounds import Bounds, Stop, tasks_in_kernel
from bridge.executor.command.logs import LogKeeper
from bridge.executor.command.marks import MarkListener, MarkReader
from bridge.executor.command.plan import CommandEnd, CommandPlan, Phase, Pipe, Watched, open_pipe
from bridge.executor.interface import Hooks
from bridge.executor.processes import subreaper
from bridge.executor.processes.cgroup import Cgroup, NoCgroup
from bridge.executor.processes.tree import MARKER_NAME, ProcessTree, Usage, adopted, kill_until_gone
from bridge.records.run import CommandResult
from bridge.system.process import Child

TICK_S: Final = 0.1
_FORCE_S: Final = 3.0  # how long the subreaper may take to clean up before we do it over its head
_READ_BYTES: Final = 1 << 18
# Read once and handed over a pipe: an upgrade may replace the file while a run goes on.
_SUBREAPER: Final = Path(subreaper.__file__).read_bytes()
_ASKING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_AS_WELL_S: Final = 1.0
_LOAD: Final = "import os,sys;f=os.fdopen(int(sys.argv.pop(1)),'rb');s=f.read();f.close();exec(s)"
NICE: Final = 10  # of a run where the kernel weighs no groups
KEEPERS: Final[set[int]] = set()
"""Ids of the living children that are no orphans: subreapers, a peer's beside its command's, and the own load."""
_DRAIN_MAX_BYTES: Final = 1 << 20  # what may still be in a pipe when everybody is dead


class Supervisor:
    """Runs the commands of one run; the log, the marks and the bounds are the run's."""

    def __init__(
        self,
        *,
        marker: str,
        hooks: Hooks,
        log: LogKeeper,
        marks: MarkReader,
        bounds: Bounds,
        on_usage: Callable[[float, Usage], None],
    ) -> None:
        self._marker = marker
        self._hooks = hooks
        self._log = log
        self._marks = marks
        self._bounds = bounds
        self._on_usage = on_usage
        self._oom_kills = 0

    def run(self, plan: CommandPlan) -> CommandEnd:
        """Start the command and return when it and everything it started are dead.

        Raises:
            InfrastructureError: the subreaper cannot be started.
            Exception: whatever a hook raises; nothing of the command is left then either.
        """
        started_s = self._bounds.elapsed_s()
        self._oom_kills = oom_kills()
        with contextlib.ExitStack() as stack:
            group = self._group(plan.name)
            stack.callback(group.remove)
            pipes = {name: open_pipe(stack) for name in ("log", "control", "status")}
            child = stack.enter_context(self._start_subreaper(plan, pipes))
            KEEPERS.add(child.pid)
            stack.callback(KEEPERS.discard, child.pid)
            tree, started = ProcessTree(child.pid, self._marker), psutil.Process(child.pid).create_time()
            with MarkListener(self._marks, plan.marks.read, self._bounds.elapsed_s, self._bounds.active):
                self._hooks.on_started(child.pid, started, self._marker)
                watched = Watched()
                try:
                    self._watch(watched, tree, group, pipes, self._order(plan, group))
                finally:  # also when a hook raises: what it raises is the runner's, what runs is ours
                    survivors = self._kill_remaining(tree, started, group, watched)
            self._drain(pipes["log"])
            return self._result(plan, watched, started_s, survivors, group)

    def _group(self, name: str) -> Cgroup | NoCgroup:
        """Make the command's control group, its bounds wider than the sampled ones."""
        limits = self._bounds.limits
        return Cgroup.create(
            f"{self._marker}-{name}",
            memory_bytes=limits.memory_bytes + limits.memory_bytes // 4,
            threads=tasks_in_kernel(limits),
        )

    def _start_subreaper(self, plan: CommandPlan, pipes: dict[str, Pipe]) -> Child:
        """Start the subreaper, which waits for its order, and close its ends of the pipes here.

        Raises:
            InfrastructureError: it cannot be started.
        """
        control, status, log = pipes["control"], pipes["status"], pipes["log"]
        with contextlib.ExitStack() as stack:
            program = open_pipe(stack)
            os.set_blocking(program.read, True)
            child = Child(
                [sys.executable, "-I", "-S", "-c", _LOAD, str(program.read), str(control.read), str(status.write)],
                env={MARKER_NAME: self._marker},
                cwd="/",
                output_fd=log.write,
                pass_fds=(program.read, control.read, status.write, plan.marks_fd, *plan.wrapped.pass_fds),
            )
            program.close_read()
            _send(program, _SUBREAPER)  # now that it reads: of a user with many pipes a new one holds 8 KiB (pipe(7))
        for pipe in (log, status, plan.marks):
            pipe.close_write()
        control.close_read()
        return child

    def _order(self, plan: CommandPlan, group: Cgroup | NoCgroup) -> bytes:
        """Return the line that tells the subreaper what to start."""
        wrapped = plan.wrapped
        order = {
            "argv": wrapped.argv,
            "env": dict(wrapped.environment),
            "cwd": str(wrapped.cwd),
            "wrappers": wrapped.wrappers,
            "cover": wrapped.cover,
            "stage": dict(wrapped.stage),
            "rlimits": plan.rlimits,
            "pass_fds": [plan.marks_fd, *wrapped.pass_fds],
            "cgroups": [str(path) for path in group.paths],
            "nice": 0 if group.weight else NICE,
        }
        return json.dumps(order).encode() + b"\n"

    def _watch(
        self, watched: Watched, tree: ProcessTree, group: Cgroup | NoCgroup, pipes: dict[str, Pipe], order: bytes
    ) -> None:
        """Follow the command until its tree is gone."""
        _send(pipes["control"], order)
        self._bounds.active()
        pending = b""
        with selectors.DefaultSelector() as selector:
            for name in ("log", "status"):
                selector.register(pipes[name].read, selectors.EVENT_READ, name)
            next_tick_s = 0.0
            while not (watched.clean or watched.lost or watched.phase is Phase.FORCED):
                for key, _events in selector.select(TICK_S):
                    block = os.read(key.fd, _READ_BYTES)
                    if not block:
                        selector.unregister(key.fd)
                        # Nobody but the subreaper holds the status pipe: its end is the subreaper's.
                        watched.lost = key.data == "status" or watched.lost
                    elif key.data == "status":
                        pending = self._read_reports(watched, pending + block)
                    else:
                        self._append_log(block)
                if (now_s := self._bounds.elapsed_s()) >= next_tick_s:
                    next_tick_s = now_s + TICK_S
                    self._tick(watched, tree, group, pipes["control"])

    def _append_log(self, block: bytes) -> None:
        self._bounds.active()
        self._log.feed(block)

    def _read_reports(self, watched: Watched, text: bytes) -> bytes:
        """Take the subreaper's reports; return the unfinished line."""
        *lines, rest = text.split(b"\n")
        for line in lines:
            report: dict[str, Any] = json.loads(line)
            if report["event"] == "spawned":
                watched.began = True
            elif report["event"] == "failed":
                watched.failed = str(report["message"])
            elif report["event"] == "exited":
                watched.exited, watched.exit_code, watched.signal = True, report["code"], report["signal"]
            elif report["event"] == "clean":
                watched.clean, watched.killed_after, watched.left = True, report["killed"], report["left"]
                watched.cpu_s = max(watched.cpu_s, report["cpu_s"])
                watched.peak_rss_bytes = max(watched.peak_rss_bytes, report["peak_rss_bytes"])
        return rest

    def _tick(self, watched: Watched, tree: ProcessTree, group: Cgroup | NoCgroup, control: Pipe) -> None:
        """Measure, ask whether to stop, and carry a stop one step further."""
        limits = self._bounds.limits
        usage = tree.usage(memory_bound=limits.memory_bytes, processes_bound=limits.processes)
        watched.peak_rss_bytes = max(watched.peak_rss_bytes, usage.rss_bytes)
        watched.cpu_s = max(watched.cpu_s, usage.cpu_s)
        self._on_usage(self._bounds.elapsed_s(), usage)
        now_s = self._bounds.elapsed_s()
        if watched.stop is None and not watched.exited:
            watched.stop = self._bounds.check(usage, self._hooks.should_stop) or self._refused_forks(group)
            watched.stop_at_s = now_s
        waited_s, before = now_s - watched.stop_at_s, watched.phase
        if watched.stop is not None and watched.phase is Phase.RUNNING:
            watched.phase = Phase.TERM if watched.stop.graceful else Phase.KILL
        elif watched.phase is Phase.TERM and waited_s > limits.grace_s:
            watched.phase, watched.stop_at_s = Phase.KILL, now_s
        elif watched.phase is Phase.KILL and waited_s > _FORCE_S:
            watched.phase = Phase.FORCED
        if watched.phase is Phase.KILL:
            group.kill()
        if watched.phase is not before and (order := watched.phase.order) is not None:
            _send(control, order)

    def _refused_forks(self, group: Cgroup | NoCgroup) -> Stop | None:
        """Return the bound that the kernel holds a fork bomb at, which the samples may never see it pass."""
        hits = group.hits()
        return self._bounds.explain(None, 0, {"tasks": hits.get("tasks", 0)})

    def _kill_remaining(self, tree: ProcessTree, started: float, group: Cgroup | NoCgroup, watched: Watched) -> int:
        """Find processes of the command by descent, marker and control group; kill them; return how many remain.

        Where its subreaper was killed, the orphans that came to this process are the command's too.
        """

        def find() -> list[psutil.Process]:
            processes = {process.pid: process for process in tree.leftovers()}
            for pid in group.members():
                with contextlib.suppress(psutil.Error):
                    processes.setdefault(pid, psutil.Process(pid))
            for process in adopted(started, KEEPERS):
                processes.setdefault(process.pid, process)
            return list(processes.values())

        if group.members():
            group.kill()
        if not watched.clean:
            with contextlib.suppress(psutil.Error):
                psutil.Process(tree.root).kill()
        killed, left = kill_until_gone(find)
        watched.killed_after += killed
        return left

    def _drain(self, log: Pipe) -> None:
        """Read what is still in the pipe; nobody writes any more."""
        for _ in range(_DRAIN_MAX_BYTES // 4096):
            try:
                block = os.read(log.read, _READ_BYTES)
            except BlockingIOError:
                return
            if not block:
                return
            self._append_log(block)

    def _asked_as_well(self) -> Stop | None:
        """Return the stop that we were asked for by who ended the command, None where nobody did.

        A cluster's queue that cancels or preempts a job signals all of its processes, in an order of its own.
        """
        until_s = self._bounds.elapsed_s() + _AS_WELL_S
        while True:
            reason = self._hooks.should_stop()
            if reason in {"cancelled", "interrupted"}:
                return Stop(reason, f"the run was {reason}", None, graceful=True)
            if self._bounds.elapsed_s() > until_s:
                return None
            time.sleep(TICK_S)

    def _result(
        self, plan: CommandPlan, watched: Watched, started_s: float, survivors: int, group: Cgroup | NoCgroup
    ) -> CommandEnd:
        exit_code, number = watched.exit_code, watched.signal
        if plan.wrapped.wrappers and exit_code is not None and 128 < exit_code <= 128 + 64:
            number, exit_code = exit_code - 128, None  # the wrapping program reports a signal as shells do
        stop = watched.stop
        if stop is None and exit_code != 0:
            kernel_hits = group.hits()
            stop = self._bounds.explain(number, watched.peak_rss_bytes, kernel_hits)
        if stop is None and (not watched.exited or number in _ASKING or watched.signal in _ASKING):
            stop = self._asked_as_well()
        killed: str | None = None
        if watched.failed is None and stop is None:
            if not watched.exited:
                killed = "the process that held the command was killed"
            elif plan.wrapped.wrappers and watched.signal is not None:
                killed = f"its sandbox was killed by signal {watched.signal}"
            elif number == signal.SIGKILL and oom_kills() > self._oom_kills:
                killed = "the kernel killed it: the host ran out of memory"
            elif exit_code != 0 and not plan.wrapped.set_up():
                watched.failed, watched.began = "the sandbox could not be set up; the end of the log says why", False
        result = CommandResult(
            name=plan.name,
            argv=plan.argv,
            started_s=started_s,
            ended_s=self._bounds.elapsed_s(),
            exit_code=exit_code,
            signal=number,
            peak_rss_bytes=watched.peak_rss_bytes,
            cpu_s=watched.cpu_s,
            survivors=survivors,
            weight=group.weight or f"nice {NICE}",
        )
        notes: list[str] = []
        if watched.killed_after and watched.began and watched.stop is None:
            notes.append(f"{watched.killed_after} processes outlived the command and were killed")
        return CommandEnd(result, stop, watched.failed, killed, watched.began or killed is not None, notes)


def oom_kills() -> int:
    """Return how many processes the kernel has killed for want of memory since it started; 0 where nobody counts."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(counts.get("oom_kill", 0))


def _send(pipe: Pipe, data: bytes) -> None:
    """Write to the subreaper; one that has died is noticed elsewhere."""
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(pipe.write, data) :]
