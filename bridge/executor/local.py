"""Run job specs on this machine, each under a supervisor of its own that outlives us.

Knows nothing about requests, buses or verdicts.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from bridge.executor.holder.attached import FollowedRun, StartingRun, attach
from bridge.executor.holder.folder import JobFile, RunFolder
from bridge.executor.holder.own_users import OwnUserProcesses
from bridge.executor.holder.run_service import RunService, connector
from bridge.executor.holder.server import supervisor_server
from bridge.executor.interface import HOST_KIND, Escape, Execution, Handle, Hooks, HostPaths, RunDirectory, RunKind
from bridge.executor.observe import host as machine
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.sandbox.held_folders import sweep_run_folders
from bridge.executor.sandbox.private_paths import own_homes, refuse_exposed
from bridge.executor.trial import SandboxTrial, kind_of, try_sandbox
from bridge.executor.trial_cache import TrialCache, trial_key
from bridge.records.jobspec import JobSpec
from bridge.records.run import HostRecord, SandboxApplied
from bridge.system.clock import Clock


class LocalExecutor:
    """Implements `bridge.executor.interface.Executor` with processes of this machine.

    Args:
        clock: the machine's clocks.
        paths: what its sandbox hides and shows; None hides the home alone.
        trials: a folder where outcomes of trials are kept for other processes; None tries the sandbox anew.
        service: the socket of a service manager that gives runs processes and users of their own; None for our own.
        own_users: a folder that tells apart runs which are users of our range in /etc/subuid; None where they are not.
        tied: whether a run ends, as interrupted, when the process that follows it does.
    """

    def __init__(
        self,
        clock: Clock,
        paths: HostPaths | None = None,
        trials: Path | None = None,
        service: str | None = None,
        own_users: Path | None = None,
        *,
        tied: bool = False,
    ) -> None:
        sweep_run_folders()
        self._clock, self._tied = clock, tied
        given = HostPaths() if paths is None else paths
        self._paths = replace(given, private=(*own_homes(), *given.private))
        self._trials: dict[tuple[int | None, RunKind], SandboxTrial] = {}
        self._service: RunService | None = None
        if service is not None:
            self._service = RunService(connector(service))
        elif own_users is not None:
            self._service = RunService(OwnUserProcesses(own_users, given).connect)
        # What starts other processes may change without a trace in what a trial here depends on: that is tried anew.
        self._cache = None if trials is None or self._service is not None else TrialCache(trials)
        self._trying = threading.Lock()
        self._maker = self._service or supervisor_server(metadata.version("kakeya"))

    @functools.cached_property
    def _host(self) -> HostRecord:
        return machine.describe()

    def warm(self) -> None:
        """Start what starts supervisors, before the first run waits for it."""
        self._maker.warm()

    def trial(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxTrial:
        """Return what the sandbox proved to be for such runs as this user; tried once."""
        with self._trying:
            if (uid, kind) not in self._trials:
                self._trials[uid, kind] = self._find_trial(uid, kind)
            return self._trials[uid, kind]

    def _find_trial(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        key = trial_key(uid, kind, self._paths)
        cached = None if self._cache is None else self._cache.load(key)
        if cached is not None:
            return cached
        trial = self.try_out(uid, kind).under(key, kind, self._clock)
        if self._cache is not None:
            self._cache.store(key, trial)
        return trial

    def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        """Try the sandbox of such runs now, whatever is known of it."""
        if self._service is not None:
            return self._service.try_sandbox(kind, self._paths)
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

    def start(
        self, spec: JobSpec, directory: RunDirectory, handle: Handle, secrets: tuple[str, ...] = ()
    ) -> StartingRun:
        """Prepare a run: a supervisor has its folder and waits for the word.

        Raises:
            SandboxUnavailableError: the spec lets the run read a private path of the host; nothing was started.
            InfrastructureError: no supervisor could be started.
        """
        if spec.sandbox.mode != "off":
            refuse_exposed(spec.sandbox.read_only, self._paths.private)
        peers = any(command.peer is not None for command in spec.commands)
        bare = spec.sandbox.mode == "off"
        folder = RunFolder(handle)
        folder.clear()
        folder.write_job(
            JobFile(
                spec=spec,
                root=str(directory.root),
                work=str(directory.work),
                out=str(directory.out),
                home=str(directory.home),
                tmp=str(directory.tmp),
                secrets=secrets,
                offered=nothing("not asked for") if bare else self.sandbox(spec.sandbox.uid, kind_of(spec)),
                peer_offered=self.sandbox(spec.sandbox.peer_uid, RunKind("peer")) if peers else None,
                host=self.host() if self._service is None else None,
                tied=self._tied,
            )
        )
        with folder.opened() as files:
            return StartingRun(folder, self._maker.start(files, directory), self._clock, self._maker)

    def recover(self, handle: Handle, hooks: Hooks) -> Execution | FollowedRun | None:
        """Return what a run came to, or the run if it goes on, or None if nothing of it ever ran and nothing will.

        Raises:
            LeftRunningError: it cannot be told yet; ask again.
            SandboxUnavailableError: it had been refused for that reason; nothing was started.
            InfrastructureError: it cannot be told, or the executor had refused to start it.
        """
        return attach(RunFolder(handle), hooks, self._clock)
