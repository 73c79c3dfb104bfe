"""Execution engines: JobSpec -> Execution. The local one runs processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.executor.interface import Executor
    from bridge.system.clock import Clock


def local_executor(clock: Clock) -> Executor:
    """Return the executor of this machine."""
    from bridge.executor.local import LocalExecutor

    return LocalExecutor(clock)
