"""`kakeya-runner supervise FOLDER`: be the supervisor of one run, on this machine or a cluster's node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from bridge.errors import UsageError


def supervise(arguments: argparse.Namespace) -> int:
    """Run the job of a folder to its end; 1 when it is another supervisor's, or was started before.

    Raises:
        UsageError: it is no run's folder.
    """
    if arguments.apart:
        from bridge.executor.engines.apart import apart

        return apart(lambda is_alone: _supervise(arguments, is_alone))
    return _supervise(arguments)


def _supervise(arguments: argparse.Namespace, is_alone: Callable[[], bool] | None = None) -> int:
    from bridge.executor.engines.node import at_node
    from bridge.executor.holder.folder import JobFile, RunFolder, make_durable, take_soon
    from bridge.executor.holder.program import preload
    from bridge.executor.holder.program import supervise as run
    from bridge.system.clock import SystemClock

    folder = RunFolder(Path(arguments.folder).absolute())
    if arguments.probe:
        from bridge.executor.engines.probe import answer

        answer(folder.root)
        return 0
    if folder.job() is None:
        raise UsageError(f"{folder.root} is no run's folder: it has no job.json", remedy="see docs/supervisor.md")
    preload()

    def complete(job: JobFile) -> JobFile:
        return at_node(job, folder.root, tied=is_alone is not None)

    with folder.opened() as files:
        take_soon(files.lock, SystemClock())
        version = metadata.version("kakeya")
        if run(files, version, lambda: True, is_alone=is_alone or (lambda: False), complete=complete):
            make_durable(files)
            return 0
    print(f"kakeya-runner: {folder.root} has a supervisor, or had one", file=sys.stderr)
    return 1
