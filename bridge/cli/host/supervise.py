"""`kakeya-runner supervise FOLDER`: be the supervisor of one run, on this machine or a cluster's node."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.screen.answer import Answer, Talk
from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import SuperviseOptions


def supervise(call: HostCall[SuperviseOptions]) -> Answer:
    """Run the job of a folder to its end; 1 when it is another supervisor's, or was started before.

    Raises:
        UsageError: it is no run's folder.
    """
    options = call.options
    if options.apart:
        from bridge.executor.engines.apart import apart

        return Answer(exit_code=apart(lambda is_alone: _supervise(options, is_alone)))
    code = _supervise(options)
    folder = Path(options.folder).absolute()
    return Answer(lines=[Talk("error", f" {folder} has a supervisor, or had one")] if code else (), exit_code=code)


def _supervise(options: SuperviseOptions, is_alone: Callable[[], bool] | None = None) -> int:
    from bridge.executor.engines.node import at_node
    from bridge.executor.holder.folder import JobFile, RunFolder, make_durable
    from bridge.executor.holder.program import preload
    from bridge.executor.holder.program import supervise as run

    folder = RunFolder(Path(options.folder).absolute())
    if options.probe:
        from bridge.executor.engines.probe import answer

        answer(folder.root)
        return 0
    if folder.job() is None:
        raise UsageError(f"{folder.root} is no run's folder: it has no job.json", remedy="see docs/supervisor.md")
    preload()

    def complete(job: JobFile) -> JobFile:
        return at_node(job, folder.root, tied=is_alone is not None)

    with folder.opened() as files:
        version = metadata.version("kakeya")
        if run(files, version, lambda: True, is_alone=is_alone or (lambda: False), complete=complete):
            make_durable(files)
            return 0
    return 1
