"""Execution engines: JobSpec -> Execution. The local one runs processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.executor.interface import HostPaths
    from bridge.executor.local import LocalExecutor
    from bridge.system.clock import Clock


def local_executor(
    clock: Clock,
    paths: HostPaths | None = None,
    trials: Path | None = None,
    service: str | None = None,
    own_users: Path | None = None,
    *,
    tied: bool = False,
) -> LocalExecutor:
    """Return the executor of this machine.

    Args:
        clock: the machine's clocks.
        paths: what its sandbox hides and shows; None hides the home alone.
        trials: a folder where outcomes of sandbox trials are kept for other processes; None tries anew.
        service: the socket of a service manager that gives runs processes and users of their own; None for our own.
        own_users: a folder that tells apart runs which are users of our range in /etc/subuid; None where they are not.
        tied: whether a run ends when the process that follows it does.
    """
    from bridge.executor.local import LocalExecutor

    return LocalExecutor(clock, paths, trials, service, own_users, tied=tied)
