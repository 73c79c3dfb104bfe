"""Run a job of a study on this machine's executor."""

from __future__ import annotations

from pathlib import Path

from bridge.executor.interface import Execution, Hooks, HostPaths, RunDirectory
from bridge.executor.local import LocalExecutor
from bridge.records.jobspec import JobSpec
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
    with LocalExecutor(SystemClock(), paths).start(spec, directory, handle_of(directory.root)) as starting:
        return starting.go(hooks).wait()


def handle_of(root: Path) -> Path:
    """Return the folder that a run shares with its supervisor, by where it may write."""
    return root.with_name(f"{root.name}.handle")
