"""Run job specs on this machine: JobSpec -> Execution.

Knows nothing about requests, buses or verdicts.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import replace

from bridge.executor.interface import Escape, Execution, Hooks, HostPaths, RunDirectory
from bridge.executor.observe import host as machine
from bridge.executor.process import tree
from bridge.executor.running import RunExecution
from bridge.executor.sandbox.choice import confine
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.sandbox.held_folders import sweep_run_folders, within_reach
from bridge.executor.sandbox.private_paths import own_home, refuse_exposed
from bridge.executor.sandbox.user import job_uid
from bridge.executor.supervision.peer_isolation import set_apart
from bridge.executor.trial import SandboxTrial, try_sandbox
from bridge.records import HostRecord, JobSpec, SandboxApplied
from bridge.system.clock import Clock


class LocalExecutor:
    """Implements `bridge.executor.interface.Executor` with processes of this machine."""

    def __init__(self, clock: Clock, paths: HostPaths | None = None) -> None:
        sweep_run_folders()
        self._clock = clock
        given = HostPaths() if paths is None else paths
        self._paths = replace(given, private=(own_home(), *given.private))
        self._trials: dict[int | None, SandboxTrial] = {}
        self._trying = threading.Lock()

    @functools.cached_property
    def _host(self) -> HostRecord:
        return machine.describe()

    def trial(self, uid: int | None = None) -> SandboxTrial:
        """Return what the sandbox proved to be for runs as this user; tried once."""
        with self._trying:
            if uid not in self._trials:
                self._trials[uid] = try_sandbox(self._clock, uid, paths=self._paths)
            return self._trials[uid]

    def host(self) -> HostRecord:
        """Describe the machine; measured once, `unknown` where there is no source."""
        return self._host

    def sandbox(self, uid: int | None = None) -> SandboxApplied:
        """Try the sandbox for real, once, and say what a run as this user would get."""
        return self.trial(uid).applied

    def escapes(self, uid: int | None = None) -> tuple[Escape, ...]:
        """Return the ways out of the sandbox that were tried, and whether each was refused."""
        return self.trial(uid).escapes

    def kill_leftovers(self, pid: int, started: float, marker: str) -> int:
        """Kill what an earlier runner left behind of one run; return how many processes were killed."""
        return tree.kill_leftovers(pid, started, marker)

    def execute(self, spec: JobSpec, directory: RunDirectory, hooks: Hooks, secrets: tuple[str, ...] = ()) -> Execution:
        """Run the commands of a job spec one after the other until one fails, a bound is hit or a stop is asked.

        Never raises for what the workload does; every process it started is dead when it returns.

        Raises:
            SandboxUnavailableError: the spec requires a sandbox this host cannot give, or lets the run read a private
                path of the host; nothing was started.
        """
        if spec.sandbox.mode != "off":
            refuse_exposed(spec.sandbox.read_only, self._paths.private)
        offered = nothing("not asked for") if spec.sandbox.mode == "off" else self.sandbox(spec.sandbox.uid)
        with within_reach(directory, job_uid(spec.sandbox.uid)) as place:
            beside = set_apart(spec, place, self.sandbox)
            confinement = confine(spec, place, offered)
            return RunExecution(
                spec, place, hooks, secrets=secrets, confinement=confinement, clock=self._clock, beside=beside
            ).execute()
