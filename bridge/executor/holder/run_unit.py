"""Be what a service manager starts for one connection: the holder of runs, one at a time, or of a trial of the sandbox.

This process is another user than the runner. A run's folders are made here, below this user's own temporary folder,
and its tree comes in an archive. The supervisor is a child of this process, which writes the end down if it is killed.
A fresh interpreter takes half a second of processor time, a fork some milliseconds: so the process holds another run
after one of the host's own code that was in a sandbox and of which nothing is left. It ends with the connection.

Run as `python -I -m bridge.executor.holder.run_unit`, with the connection as standard input.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import tarfile
from importlib import metadata
from pathlib import Path
from typing import Final

from bridge.errors import KakeyaError
from bridge.executor.holder.folder import (
    FolderFiles,
    JobFile,
    SupervisorFacts,
    make_durable,
    read_all,
    write_kept,
)
from bridge.executor.holder.killed import killed_run
from bridge.executor.holder.program import hung_up, preload, supervise, told_to_go
from bridge.executor.holder.run_service import ANSWER, FREE, SUPERVISE, TRY, TrialQuestion
from bridge.executor.interface import RunDirectory
from bridge.executor.processes.subreaper import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, descendants, prctl
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.sandbox.held_folders import held_folder, sweep
from bridge.executor.trial import SandboxTrial, make_directory, try_sandbox
from bridge.system.clock import SystemClock
from bridge.system.durable import write_all

_COUNT: Final = len(FolderFiles.__dataclass_fields__)
_OWN_TMP: Final = Path("/var/tmp")  # noqa: S108 - private to the unit, and on a disk
_PREFIX: Final = "kakeya-run-"
_JOB_MAX_BYTES: Final = 1 << 26


def main() -> int:
    """Serve the one connection; 2 when something that cannot be read came over it."""
    connection = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    connection.setblocking(True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    return serve(connection)


def serve(connection: socket.socket) -> int:
    """Hold runs until there is a reason to end, or the runner has gone; return the exit code."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever outlives a supervisor is found here
    prctl(PR_SET_DUMPABLE, 0)  # a run that got out of its sandbox is this user too, and must not write our memory
    version = metadata.version("kakeya")  # an upgrade may replace its file under us
    preload()
    gc.collect()
    gc.freeze()
    while True:
        try:
            order, descriptors, _flags, _address = socket.recv_fds(connection, 1, _COUNT + 2)
        except ConnectionResetError:  # the runner went away with something of ours unread
            return 0
        for passed in descriptors:
            os.set_inheritable(passed, False)
        if order == SUPERVISE and len(descriptors) == _COUNT + 2:
            files, (tree, runner) = FolderFiles(*descriptors[:_COUNT]), descriptors[_COUNT:]
            if not hold(files, tree, socket.socket(fileno=runner), connection, version):
                return 0
            with contextlib.suppress(OSError):  # the runner may be gone
                connection.sendall(FREE)
        elif order == TRY and len(descriptors) == 1:
            question = TrialQuestion.parse(read_all(descriptors[0]), max_bytes=_JOB_MAX_BYTES)
            trial = try_sandbox(SystemClock(), None, kind=question.kind, paths=question.paths)
            connection.sendall(ANSWER.dump_json(trial))
            return 0
        else:
            return 2 if order else 0


def refuse(connection: socket.socket, error: KakeyaError) -> int:
    """Answer the first order with the reason why this process cannot hold runs; return the exit code."""
    order, descriptors, _flags, _address = socket.recv_fds(connection, 1, _COUNT + 2)
    if order == TRY:
        connection.sendall(ANSWER.dump_json(SandboxTrial(nothing(error.message))))
    elif order == SUPERVISE:
        refusal = (type(error).__name__, error.message, error.remedy)
        write_kept(FolderFiles(*descriptors[:_COUNT]), metadata.version("kakeya"), None, refusal)
    return 1


def hold(files: FolderFiles, tree: int, runner: socket.socket, connection: socket.socket, version: str) -> bool:
    """Have a child supervise a run in folders of this user's; return whether this process may hold another.

    Writes down the run's end if the child does not.

    Args:
        files: the run's folder.
        tree: an archive of what its working directory holds.
        runner: the connection to the runner, which says go and need not live until the end.
        connection: over which orders come; not the child's.
        version: of the bridge that was imported.
    """
    sweep(_PREFIX, _OWN_TMP)
    with held_folder(_PREFIX, _OWN_TMP) as top:
        directory = make_directory(top / "files")
        with os.fdopen(tree, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            # The runner made it from a checkout: no entry lies behind a link, and links may point anywhere.
            archive.extractall(directory.work, filter="fully_trusted")  # noqa: S202
        child = os.fork()
        if child == 0:
            connection.close()
            _supervise(files, runner, version, directory)
        status, stopped = _wait(child)
        if status != 0:
            _write_end(files, version)
        os.close(files.lock)  # before the connection: who sees its end finds the folder free
        runner.close()
        make_durable(files)
    clean = status == 0 and not stopped and _may_be_followed(files) and not descendants(os.getpid())
    for descriptor in files.all():
        if descriptor != files.lock:
            os.close(descriptor)
    return clean


def _wait(child: int) -> tuple[int, bool]:
    """Wait for a child's end, handing on signals that ask for it; return its status, and whether one came."""
    stopped: list[int] = []

    def hand_on(number: int, _frame: object) -> None:
        stopped.append(number)
        os.kill(child, number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        _, status = os.waitpid(child, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status, bool(stopped)


def _may_be_followed(files: FolderFiles) -> bool:
    """Whether another run may be this user: only after the host's own code in a sandbox.

    What was in none may have left something that is this user's; what code of a request did is nobody's to vouch for.
    """
    spec = json.loads(read_all(files.job))["spec"]
    return bool(spec["code"] == "host" and spec["sandbox"]["mode"] == "required")


def _supervise(files: FolderFiles, connection: socket.socket, version: str, directory: RunDirectory) -> None:
    """Be the supervisor; never returns."""
    try:
        supervise(files, version, lambda: told_to_go(connection), directory, is_alone=lambda: hung_up(connection))
        os._exit(0)
    finally:
        os._exit(1)


def _write_end(files: FolderFiles, version: str) -> None:
    """Write down that the supervisor was killed, if it had begun; otherwise nothing ever ran."""
    facts = read_all(files.lock)
    if not facts:
        return
    job = JobFile.parse(read_all(files.job), max_bytes=_JOB_MAX_BYTES, max_depth=32)
    log = read_all(files.log)
    execution = killed_run(
        job, SupervisorFacts.parse(facts), log=log, marks=read_all(files.marks), failed=None, clock=SystemClock()
    )
    write_all(files.log, execution.log[len(log) :])
    write_kept(files, version, execution)


if __name__ == "__main__":
    sys.exit(main())
