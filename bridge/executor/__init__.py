"""Execution engines: JobSpec -> Execution. The local one runs processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.executor.interface import Executor, HostPaths
    from bridge.system.clock import Clock


def local_executor(clock: Clock, paths: HostPaths | None = None) -> Executor:
    """Return the executor of this machine, whose sandbox keeps and shows these paths; None hides the home alone."""
    from bridge.executor.local import LocalExecutor

    return LocalExecutor(clock, paths)
