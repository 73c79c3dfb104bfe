"""The supervisor of one run: takes its folder, runs its commands, writes down what they came to.

Needs nothing of the package's files once it is imported, so that an upgrade may replace them under it; and nothing of
the runner once it was told to go.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import psutil

from bridge.errors import KakeyaError
from bridge.executor.command.peer_isolation import set_apart
from bridge.executor.holder.folder import (
    STOPS,
    FolderFiles,
    JobFile,
    SupervisorFacts,
    read_all,
    rewrite,
    take_soon,
    write_kept,
)
from bridge.executor.interface import Execution, Hooks, RunDirectory
from bridge.executor.observe import host as machine
from bridge.executor.processes.subreaper import PR_SET_CHILD_SUBREAPER, prctl
from bridge.executor.running import RunExecution
from bridge.executor.sandbox.choice import confine
from bridge.executor.sandbox.held_folders import within_reach
from bridge.executor.sandbox.user import job_uid
from bridge.records.base import Record
from bridge.records.claim import RunProgress
from bridge.records.run import SampleMark, SandboxApplied
from bridge.run.outcomes import one_line
from bridge.system.clock import SystemClock, rfc3339
from bridge.system.durable import write_all

GO: Final = b"g"
READY: Final = b"r"
# A turn's stamp waits for the thread that samples processes; 5 ms, Python's own interval, would be a tenth of a turn.
_SWITCH_S: Final = 0.0005
_JSON_MAX_BYTES: Final = 1 << 26


def supervise(
    files: FolderFiles,
    version: str,
    wait_for_go: Callable[[], bool],
    here: RunDirectory | None = None,
    *,
    is_alone: Callable[[], bool] = lambda: False,
    complete: Callable[[JobFile], JobFile] = lambda job: job,
) -> bool:
    """Run one job to its end; return False when it is not ours to run: taken, started before, or never let go.

    Args:
        files: the folder's files.
        version: of the installed bridge, for who reads what was kept.
        wait_for_go: called when the folder is ours; False means that nobody wants the run any more.
        here: where the run may write, if this process is another user than its runner; None as the job says.
        is_alone: returns whether the process that said go is gone, which ends a run that is tied to it.
        complete: returns the job with what only the machine that runs it can say.
    """
    if not take_soon(files.lock, SystemClock()) or os.fstat(files.lock).st_size > 0 or not wait_for_go():
        return False
    sys.setswitchinterval(_SWITCH_S)
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a killed subreaper of a command leaves behind comes to us
    stopped = _Stop(files.stop)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stopped.on_signal)
    try:
        job = complete(JobFile.parse(read_all(files.job), max_bytes=_JSON_MAX_BYTES, max_depth=32))
        stopped.alone = is_alone if job.tied else stopped.alone
        execution = stopped.explained(_execute(job, files, version, stopped.asked, here))
    except KakeyaError as error:
        write_kept(files, version, None, (type(error).__name__, one_line(error.message), error.remedy))
    except Exception as error:  # noqa: BLE001 - nobody is above; the runner says it with the place
        where = traceback.extract_tb(error.__traceback__)[-1]
        bug = f"a bug in the supervisor: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        write_kept(files, version, None, ("InfrastructureError", one_line(bug), None))
    else:
        write_kept(files, version, execution)
    return True


def told_to_go(connection: socket.socket) -> bool:
    """Say that the folder is ours and wait for the word; False when the runner has gone."""
    with contextlib.suppress(OSError):
        connection.sendall(READY)
        return connection.recv(1) == GO
    return False


def hung_up(connection: socket.socket) -> bool:
    """Return whether who said go is gone: its end of the connection is closed."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def preload() -> None:
    """Import what is otherwise imported on first use, and build what is otherwise built then."""
    kinds = [Record]
    for kind in kinds:
        kinds += kind.__subclasses__()
        kind.model_rebuild()
    with contextlib.suppress(ImportError):
        import pynvml  # noqa: F401
    if sys.platform == "darwin":
        import bridge.executor.sandbox.seatbelt
    else:
        import bridge.executor.sandbox.bubblewrap  # noqa: F401


class _Stop:
    """Whether the run is to end: a byte in the folder's file, a signal to this process, or who followed it is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._signal: int | None = None
        self.alone: Callable[[], bool] = lambda: False

    def on_signal(self, number: int, _frame: object) -> None:
        self._signal = number

    def asked(self) -> Literal["cancelled", "interrupted"] | None:
        return self._said() or ("interrupted" if self._signal is not None or self.alone() else None)

    def explained(self, execution: Execution) -> Execution:
        """Return what a run came to; where it was interrupted, with what asked for that."""
        if execution.ending != "interrupted":
            return execution
        if self._said() is not None:
            who = "asked through its folder"
        elif self._signal is not None:
            who = f"{signal.Signals(self._signal).name} came to its supervisor"
        else:
            who = "the process that it was tied to is gone"
        return replace(execution, message=f"{execution.message}: {who}")

    def _said(self) -> Literal["cancelled", "interrupted"] | None:
        return STOPS.get(os.pread(self._descriptor, 1, 0))


def _execute(
    job: JobFile,
    files: FolderFiles,
    version: str,
    should_stop: Callable[[], Literal["cancelled", "interrupted"] | None],
    here: RunDirectory | None,
) -> Execution:
    clock, spec = SystemClock(), job.spec

    def offered(uid: int | None) -> SandboxApplied:
        return job.peer_offered if uid == spec.sandbox.peer_uid and job.peer_offered is not None else job.offered

    def on_log(block: bytes) -> None:
        write_all(files.log, block)

    def on_mark(mark: SampleMark) -> None:
        write_all(files.marks, mark.canonical() + b"\n")

    def on_progress(progress: RunProgress) -> None:
        rewrite(files.progress, progress.canonical())

    with within_reach(here or job.directory, job_uid(spec.sandbox.uid)) as place:
        beside = set_apart(spec, place, offered)
        confinement = confine(spec, place, job.offered, apart=here is not None)
        running = RunExecution(
            spec,
            place,
            Hooks(on_log=on_log, should_stop=should_stop, on_progress=on_progress),
            secrets=job.secrets,
            confinement=confinement,
            clock=clock,
            beside=beside,
            host=job.host or machine.describe(),
            on_mark=on_mark,
        )
        _write_facts(files.lock, version, running, place, clock)
        return running.execute()


def _write_facts(lock: int, version: str, running: RunExecution, place: RunDirectory, clock: SystemClock) -> None:
    """Say who runs this, durably, before anything runs: from here on the run counts as started."""
    stamp = running.stamp
    facts = SupervisorFacts(
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        boot_id=machine.boot_id(),
        version=version,
        marker=running.marker,
        began=rfc3339(clock.now()),
        out=str(place.out),
        device=stamp.device,
        inode=stamp.inode,
        since_ns=stamp.since_ns,
    )
    write_all(lock, json.dumps(facts.model_dump(mode="json")).encode())
    os.fsync(lock)
