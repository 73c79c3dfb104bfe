"""Execution engines: JobSpec -> Execution. The local one runs processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.executor.interface import HostPaths
    from bridge.executor.local import LocalExecutor
    from bridge.system.clock import Clock


def local_executor(
    clock: Clock, paths: HostPaths | None = None, trials: Path | None = None, service: str | None = None
) -> LocalExecutor:
    """Return the executor of this machine.

    Args:
        clock: the machine's clocks.
        paths: what its sandbox hides and shows; None hides the home alone.
        trials: a folder where outcomes of sandbox trials are kept for other processes; None tries anew.
        service: the socket of a service manager that gives each run a process and a user of its own; None for our own.
    """
    from bridge.executor.local import LocalExecutor

    return LocalExecutor(clock, paths, trials, service)
