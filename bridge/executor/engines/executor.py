"""An executor whose runs are placed on the nodes of a cluster; on a node the same supervisor runs them.

Host, sandbox and condition of a run are the node's. Knows nothing about requests, buses or verdicts.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Final

from bridge.errors import SandboxUnavailableError
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.placed import ClusterQueue, PlacedRun
from bridge.executor.engines.placing import NodeJob, PlacedStart, find_again
from bridge.executor.holder.folder import JobFile, RunFolder
from bridge.executor.interface import HOST_KIND, Escape, Execution, Handle, Hooks, HostPaths, RunDirectory, RunKind
from bridge.executor.observe import host as machine
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.sandbox.private_paths import own_homes, refuse_exposed
from bridge.records.jobspec import JobSpec
from bridge.records.run import HostRecord, SandboxApplied
from bridge.system.clock import Clock

_TRIAL_S: Final = 120.0  # what a node may take to try its sandbox before the run
_END_S: Final = 60.0
_BY_NODES: Final = "tried on the node that runs it"


class EngineExecutor:
    """Implements `bridge.executor.interface.Executor` over an engine and a folder that all nodes share.

    Args:
        clock: the machine's clocks.
        queue: the engine, and how long runs may wait there.
        paths: what the sandbox hides and shows on a node.
        trials: a folder in which the nodes keep outcomes of sandbox trials.
        python: the interpreter that runs the supervisor on a node, at the same path as here.
    """

    def __init__(
        self, clock: Clock, queue: ClusterQueue, paths: HostPaths, trials: Path, python: str = sys.executable
    ) -> None:
        self._clock, self._queue, self._trials, self._python = clock, queue, trials, python
        self._paths = node_paths(paths)

    @functools.cached_property
    def _front(self) -> HostRecord:
        return machine.describe()

    def warm(self) -> None:
        """Do nothing: no supervisor starts here."""

    def host(self) -> HostRecord:
        """Describe the machine that submits; a run's own host is its node."""
        return self._front

    def sandbox(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxApplied:  # noqa: ARG002 - the interface
        """Say that each node tries its own."""
        return nothing(_BY_NODES)

    def escapes(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> tuple[Escape, ...]:  # noqa: ARG002 - the interface
        """Return nothing: ways out are tried on the nodes."""
        return ()

    def start(
        self, spec: JobSpec, directory: RunDirectory, handle: Handle, secrets: tuple[str, ...] = ()
    ) -> PlacedStart:
        """Prepare a run: its folder is whole, and nothing is submitted.

        Raises:
            SandboxUnavailableError: it wants none, and the engine would not find what it leaves behind; or it may read
                a private path; or it could place jobs itself.
            InfrastructureError: the engine does not answer.
        """
        if spec.sandbox.mode != "off":
            refuse_exposed(spec.sandbox.read_only, self._paths.private)
        leaves = None if spec.sandbox.mode == "required" else self._queue.engine.check()
        if leaves is not None and spec.sandbox.mode == "off":
            raise SandboxUnavailableError(
                f"this run wants no sandbox: {leaves}",
                remedy='set sandbox.mode = "required" in policy.toml',
            )
        if leaves is not None:  # on a node that has none it would be without
            spec = spec.evolve(sandbox=spec.sandbox.evolve(mode="required"))
        if spec.sandbox.network == "host" and (open_to := self._queue.engine.open_to_runs()) is not None:
            raise SandboxUnavailableError(
                f"this run reaches the network of its host, and {self._queue.engine.name} with it: {open_to}",
                remedy="start Ray with RAY_AUTH_MODE=token and name its token_file in [executor], or forbid networks: "
                'sandbox.network = "internet" at most',
            )
        folder = RunFolder(handle)
        folder.write_job(
            JobFile(
                spec=spec,
                root=str(directory.root),
                work=str(directory.work),
                out=str(directory.out),
                home=str(directory.home),
                tmp=str(directory.tmp),
                secrets=secrets,
                offered=nothing(_BY_NODES),
                paths=self._paths,
                trials=str(self._trials),
            )
        )
        apart = ("--apart",) if self._queue.engine.ends_descendants else ()
        argv = (self._python, "-I", "-m", "bridge.cli.host.main", "supervise", *apart, str(handle))
        job = NodeJob(f"kakeya-{spec.id}", argv, _needs(spec))
        return PlacedStart(folder, self._queue, self._clock, job)

    def recover(self, handle: Handle, hooks: Hooks) -> Execution | PlacedRun | None:
        """Return what a run came to, the run if it may go on, None if nothing was submitted for it.

        Raises:
            SandboxUnavailableError: it had been refused for that reason; nothing was started.
            InfrastructureError: the engine does not answer, or refused or ended it before it began.
        """
        return find_again(RunFolder(handle), hooks, self._queue, self._clock)


def node_paths(paths: HostPaths) -> HostPaths:
    """Return what the sandbox of a node hides and shows: as here, and without this user's homes."""
    return HostPaths((*own_homes(), *paths.private), paths.read_only, paths.devices, paths.interpreter)


def job_wall_s(wall_s: float, grace_s: float) -> float:
    """Return after how many seconds the engine ends the job of a run with these bounds: beyond all of its own."""
    return wall_s + grace_s + _TRIAL_S + _END_S


def _needs(spec: JobSpec) -> JobNeeds:
    """Return what a spec asks of its engine: a wall time beyond all of its own bounds."""
    limits = spec.limits
    return JobNeeds(spec.placement or (), job_wall_s(limits.wall_s, limits.grace_s))
