"""Run job specs on this machine: JobSpec -> Execution.

Knows nothing about requests, buses or verdicts.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import replace
from pathlib import Path

from bridge.executor.interface import HOST_KIND, Escape, Execution, Hooks, HostPaths, RunDirectory, RunKind
from bridge.executor.observe import host as machine
from bridge.executor.process import tree
from bridge.executor.running import RunExecution
from bridge.executor.sandbox.choice import confine
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.sandbox.held_folders import sweep_run_folders, within_reach
from bridge.executor.sandbox.private_paths import own_home, refuse_exposed
from bridge.executor.sandbox.user import job_uid
from bridge.executor.supervision.peer_isolation import set_apart
from bridge.executor.trial import SandboxTrial, kind_of, try_sandbox
from bridge.executor.trial_cache import TrialCache, trial_key
from bridge.records import HostRecord, JobSpec, SandboxApplied
from bridge.system.clock import Clock


class LocalExecutor:
    """Implements `bridge.executor.interface.Executor` with processes of this machine.

    Args:
        clock: the machine's clocks.
        paths: what its sandbox hides and shows; None hides the home alone.
        trials: a folder where outcomes of trials are kept for other processes; None tries the sandbox anew.
    """

    def __init__(self, clock: Clock, paths: HostPaths | None = None, trials: Path | None = None) -> None:
        sweep_run_folders()
        self._clock = clock
        given = HostPaths() if paths is None else paths
        self._paths = replace(given, private=(own_home(), *given.private))
        self._trials: dict[tuple[int | None, RunKind], SandboxTrial] = {}
        self._cache = None if trials is None else TrialCache(trials)
        self._trying = threading.Lock()

    @functools.cached_property
    def _host(self) -> HostRecord:
        return machine.describe()

    def trial(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxTrial:
        """Return what the sandbox proved to be for such runs as this user; tried once."""
        with self._trying:
            if (uid, kind) not in self._trials:
                self._trials[uid, kind] = self._find_trial(uid, kind)
            return self._trials[uid, kind]

    def _find_trial(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        key = trial_key(uid, kind, self._paths)
        known = None if self._cache is None else self._cache.load(key)
        if known is not None:
            return known
        found = self.try_out(uid, kind).under(key, kind, self._clock)
        if self._cache is not None:
            self._cache.store(key, found)
        return found

    def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        """Try the sandbox of such runs now, whatever is known of it."""
        return try_sandbox(self._clock, uid, kind=kind, paths=self._paths)

    def host(self) -> HostRecord:
        """Describe the machine; measured once, `unknown` where there is no source."""
        return self._host

    def sandbox(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxApplied:
        """Try the sandbox for real, once, and say what such a run as this user would get."""
        return self.trial(uid, kind).applied

    def escapes(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> tuple[Escape, ...]:
        """Return the ways out of the sandbox that were tried, and whether each was refused."""
        return self.trial(uid, kind).escapes

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
        offered = (
            nothing("not asked for") if spec.sandbox.mode == "off" else self.sandbox(spec.sandbox.uid, kind_of(spec))
        )
        with within_reach(directory, job_uid(spec.sandbox.uid)) as place:
            beside = set_apart(spec, place, lambda uid: self.sandbox(uid, RunKind("peer")))
            confinement = confine(spec, place, offered)
            return RunExecution(
                spec, place, hooks, secrets=secrets, confinement=confinement, clock=self._clock, beside=beside
            ).execute()
