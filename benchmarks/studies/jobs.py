"""Run a job of a study on this machine's executor."""

from __future__ import annotations

from bridge.executor.interface import Execution, Hooks, HostPaths, RunDirectory
from bridge.executor.local import LocalExecutor
from bridge.records import JobSpec
from bridge.system.clock import SystemClock

QUIET = Hooks(on_log=lambda _: None, on_started=lambda *_: None, should_stop=lambda: None)


def carry_out(
    spec: JobSpec, directory: RunDirectory, paths: HostPaths | None = None, hooks: Hooks = QUIET
) -> Execution:
    """Return what a run came to.

    Args:
        spec: what runs.
        directory: new folders for it.
        paths: what its sandbox hides and shows; None hides the home alone.
        hooks: how the study takes part in it.
    """
    return LocalExecutor(SystemClock(), paths).execute(spec, directory, hooks)
