"""Be what a service manager starts for one connection: the holder of one run, or of one trial of the sandbox.

This process is another user than the runner. The run's folders are made here, below this user's own temporary folder,
and its tree comes in an archive. The supervisor is a child of this process, which writes the end down if it is killed.

Run as `python -I -m bridge.executor.supervisor.run_unit`, with the connection as standard input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tarfile
from importlib import metadata
from pathlib import Path
from typing import Final

from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.held_folders import held_folder, sweep
from bridge.executor.supervisor.folder import (
    FolderFiles,
    JobFile,
    SupervisorFacts,
    make_durable,
    read_all,
    write_all,
    write_kept,
)
from bridge.executor.supervisor.killed import killed_run
from bridge.executor.supervisor.program import preload, supervise
from bridge.executor.supervisor.run_service import ANSWER, SUPERVISE, TrialQuestion
from bridge.executor.supervisor.server import GO, READY
from bridge.executor.trial import make_directory, try_sandbox
from bridge.system.clock import SystemClock

_COUNT: Final = len(FolderFiles.__dataclass_fields__)
_OWN_TMP: Final = Path("/var/tmp")  # noqa: S108 - private to the unit, and on a disk
_PREFIX: Final = "kakeya-run-"
_JOB_MAX_BYTES: Final = 1 << 26


def main() -> int:
    """Serve the one connection; 2 when nothing that can be read came over it."""
    connection = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    connection.setblocking(True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    order, found, _flags, _address = socket.recv_fds(connection, 1, _COUNT + 1)
    for passed in found:
        os.set_inheritable(passed, False)
    if order == SUPERVISE and len(found) == _COUNT + 1:
        preload()
        hold(FolderFiles(*found[:_COUNT]), found[_COUNT], connection)
        return 0
    if len(found) == 1:
        question = TrialQuestion.parse(read_all(found[0]), max_bytes=_JOB_MAX_BYTES)
        trial = try_sandbox(SystemClock(), None, kind=question.kind, paths=question.paths)
        connection.sendall(ANSWER.dump_json(trial))
        return 0
    return 2


def hold(files: FolderFiles, tree: int, connection: socket.socket) -> None:
    """Have a child supervise the run in folders of this user's; write down its end if the child does not.

    Args:
        files: the run's folder.
        tree: an archive of what its working directory holds.
        connection: to the runner, which says go and need not live until the end.
    """
    version = metadata.version("kakeya")
    sweep(_PREFIX, _OWN_TMP)
    with held_folder(_PREFIX, _OWN_TMP) as top:
        directory = make_directory(top / "files")
        with os.fdopen(tree, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            # The runner made it from a checkout: no entry lies behind a link, and links may point anywhere.
            archive.extractall(directory.work, filter="fully_trusted")  # noqa: S202
        child = os.fork()
        if child == 0:
            _supervise(files, connection, version, directory)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda got, _frame: os.kill(child, got))
        _, status = os.waitpid(child, 0)
        if status != 0:
            _write_end(files, version)
    os.close(files.lock)  # before the connection: who sees its end finds the folder free
    connection.close()
    make_durable(files)


def _supervise(files: FolderFiles, connection: socket.socket, version: str, directory: RunDirectory) -> None:
    """Be the supervisor; never returns."""

    def wait_for_go() -> bool:
        with contextlib.suppress(OSError):
            connection.sendall(READY)
            return connection.recv(1) == GO
        return False

    try:
        supervise(files, version, wait_for_go, directory)
        os._exit(0)
    finally:
        os._exit(1)


def _write_end(files: FolderFiles, version: str) -> None:
    """Write down that the supervisor was killed, if it had begun; otherwise nothing ever ran."""
    found = read_all(files.lock)
    if not found:
        return
    job = JobFile.parse(read_all(files.job), max_bytes=_JOB_MAX_BYTES, max_depth=32)
    log = read_all(files.log)
    execution = killed_run(
        job, SupervisorFacts.parse(found), log=log, marks=read_all(files.marks), failed=None, clock=SystemClock()
    )
    write_all(files.log, execution.log[len(log) :])
    write_kept(files, version, execution)


if __name__ == "__main__":
    sys.exit(main())
