"""Run job specs on this machine: JobSpec -> Execution.

Knows nothing about requests, buses or verdicts.
"""

from __future__ import annotations

import functools

from bridge.executor import host as machine
from bridge.executor import tree
from bridge.executor.confine import confine, nothing
from bridge.executor.interface import Execution, Hooks, RunDirectory
from bridge.executor.running import Run
from bridge.executor.selftest import try_sandbox
from bridge.records import HostRecord, JobSpec, SandboxApplied
from bridge.system.clock import Clock


class LocalExecutor:
    """Implements `bridge.executor.interface.Executor` with processes of this machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offers: dict[int | None, SandboxApplied] = {}

    @functools.cached_property
    def _host(self) -> HostRecord:
        return machine.describe()

    def _offer(self, uid: int | None) -> SandboxApplied:
        """Return what the sandbox proved to be for runs as this user; tried once."""
        if uid not in self._offers:
            self._offers[uid] = try_sandbox(self._clock, uid)
        return self._offers[uid]

    def host(self) -> HostRecord:
        """Describe the machine; measured once, `unknown` where there is no source."""
        return self._host

    def sandbox(self) -> SandboxApplied:
        """Try the sandbox for real and say what a run would get."""
        return self._offer(None)

    def kill_leftovers(self, pid: int, started: float, marker: str) -> int:
        """Kill what an earlier runner left behind of one run; return how many processes were killed."""
        return tree.kill_leftovers(pid, started, marker)

    def execute(self, spec: JobSpec, directory: RunDirectory, hooks: Hooks, secrets: tuple[str, ...] = ()) -> Execution:
        """Run the commands of a job spec one after the other until one fails, a bound is hit or a stop is asked.

        Never raises for what the workload does; every process it started is dead when it returns.

        Raises:
            SandboxUnavailableError: the spec requires a sandbox this host cannot give; nothing was started.
        """
        offered = nothing("not asked for") if spec.sandbox.mode == "off" else self._offer(spec.sandbox.uid)
        confinement = confine(spec, directory, offered)
        return Run(spec, directory, hooks, secrets=secrets, confinement=confinement, clock=self._clock).execute()
