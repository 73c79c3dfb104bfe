"""Ask a service manager for supervisors: a connection to its socket is a process of another user, for a run at a time.

The connection carries the folder's open files and the run's tree, so nothing is given to another user, and the service
manager is the supervisor's parent, gives it its user and kills what it leaves. What answers is `run_unit`. Runs that go
on together are different users; one that begins later may get the process, and so the user, of one of the host's own
code that has ended.
"""

from __future__ import annotations

import socket
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pydantic

from bridge.errors import InfrastructureError
from bridge.executor.holder.folder import FolderFiles
from bridge.executor.interface import HostPaths, RunDirectory, RunKind
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.trial import SandboxTrial
from bridge.records.base import Record

SUPERVISE: Final = b"s"
TRY: Final = b"t"
FREE: Final = b"f"
_TRIAL_S: Final = 120.0
_ANSWER_BYTES: Final = 1 << 20


class TrialQuestion(Record):
    """Which sandbox the service is to try, against which paths of this host.

    Attributes:
        paths: with what the private ones are on disk, which another user may not look up.
    """

    kind: RunKind
    paths: HostPaths


ANSWER: Final = pydantic.TypeAdapter(SandboxTrial)


class RunService:
    """Processes of other users, each of which holds one run at a time.

    Args:
        connect: starts one and returns a connection to it; raises InfrastructureError.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._free: list[socket.socket] = []
        self._busy: list[socket.socket] = []
        weakref.finalize(self, _close_all, self._free, self._busy)

    def warm(self) -> None:
        """Have a process started for the next run, unless one waits; where nobody answers, the run itself says so."""
        with self._lock, suppress(InfrastructureError):
            self._look()
            if not self._free:
                self._free.append(self._connect())

    def start(self, files: FolderFiles, directory: RunDirectory) -> socket.socket:
        """Have a supervisor made for a folder; return the connection on which it says ready and is told to go.

        Raises:
            InfrastructureError: no process could be started for it.
        """
        ours, its = socket.socketpair()
        try:
            with its, _packed(directory.work) as tree, self._lock:
                self._look()
                unit = self._free.pop() if self._free else self._connect()
                self._busy.append(unit)
                socket.send_fds(unit, [SUPERVISE], [*files.all(), tree, its.fileno()])
        except InfrastructureError:
            ours.close()
            raise
        except OSError as error:
            ours.close()
            raise _gone(error) from error
        return ours

    def _look(self) -> None:
        """See which processes hold no run any more, and which are gone."""
        for unit in (*self._free, *self._busy):
            try:
                answer = unit.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                answer = b""
            (self._busy if unit in self._busy else self._free).remove(unit)
            if answer == FREE:
                self._free.append(unit)
            else:
                unit.close()

    def try_sandbox(self, kind: RunKind, paths: HostPaths) -> SandboxTrial:
        """Have the service try the sandbox that it gives such runs."""
        question = TrialQuestion(kind=kind, paths=replace(paths, identities=tuple(_identities(paths))))
        try:
            with self._connect() as connection, tempfile.TemporaryFile() as file:
                connection.settimeout(_TRIAL_S)
                file.write(question.model_dump_json().encode())
                file.flush()
                socket.send_fds(connection, [TRY], [file.fileno()])
                answer = b"".join(iter(lambda: connection.recv(_ANSWER_BYTES), b""))
            return ANSWER.validate_json(answer)
        except InfrastructureError as error:
            return SandboxTrial(nothing("; ".join(filter(None, (error.message, error.remedy)))))
        except OSError as error:
            return SandboxTrial(nothing(_gone(error).message))
        except pydantic.ValidationError:
            return SandboxTrial(nothing("the process that tries it gave no answer; journalctl -u 'kakeya-run@*'"))


def connector(path: str) -> Callable[[], socket.socket]:
    """Return a function that connects to a service manager's socket, behind which each connection gets a process."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            raise InfrastructureError(
                f"no supervisor of runs at {path}: {error.strerror or error}",
                remedy="systemctl status kakeya-run.socket; sandbox.socket in policy.toml names it",
            ) from error
        return connection

    return connect


def _gone(error: OSError) -> InfrastructureError:
    return InfrastructureError(f"the process that holds runs has gone: {error.strerror or error}")


def _close_all(*pools: list[socket.socket]) -> None:
    for units in pools:
        for unit in units:
            unit.close()


@contextmanager
def _packed(work: Path) -> Iterator[int]:
    """Yield a descriptor of an archive of the run's tree, links in it as links; read from its beginning."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(work.iterdir()):
                archive.add(path, path.name)
        file.flush()
        file.seek(0)
        yield file.fileno()


def _identities(paths: HostPaths) -> Iterator[tuple[str, int, int]]:
    for path in paths.private:
        with suppress(OSError):
            facts = Path(path).stat()
            yield path, facts.st_dev, facts.st_ino
