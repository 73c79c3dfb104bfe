"""Ask a service manager for supervisors: a connection to its socket is one run, under a user of the run's own.

The connection carries the folder's open files and the run's tree, so nothing is given to another user, and the service
manager is the supervisor's parent, gives it its user and kills what it leaves. What answers is `run_unit`.
"""

from __future__ import annotations

import socket
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pydantic

from bridge.errors import InfrastructureError
from bridge.executor.interface import HostPaths, RunDirectory, RunKind
from bridge.executor.sandbox.confinement import nothing
from bridge.executor.supervisor.folder import FolderFiles
from bridge.executor.trial import SandboxTrial
from bridge.records import Record

SUPERVISE: Final = b"s"
TRY: Final = b"t"
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
    """A socket of a service manager, behind which each connection gets a supervisor of its own.

    Args:
        path: of the unix socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def warm(self) -> None:
        """Do nothing: the service manager starts a process for each connection."""

    def start(self, files: FolderFiles, directory: RunDirectory) -> socket.socket:
        """Have a supervisor made for a folder; return the connection on which it says ready and is told to go.

        Raises:
            InfrastructureError: nobody answers at the socket.
        """
        connection = self._connected()
        try:
            with _packed(directory.work) as tree:
                socket.send_fds(connection, [SUPERVISE], [*files.all(), tree])
        except OSError as error:
            connection.close()
            raise self._away(error) from error
        return connection

    def try_sandbox(self, kind: RunKind, paths: HostPaths) -> SandboxTrial:
        """Have the service try the sandbox that it gives such runs."""
        question = TrialQuestion(kind=kind, paths=replace(paths, identities=tuple(_identities(paths))))
        try:
            with self._connected() as connection, tempfile.TemporaryFile() as file:
                connection.settimeout(_TRIAL_S)
                file.write(question.model_dump_json().encode())
                file.flush()
                socket.send_fds(connection, [TRY], [file.fileno()])
                answer = b"".join(iter(lambda: connection.recv(_ANSWER_BYTES), b""))
            return ANSWER.validate_json(answer)
        except InfrastructureError as error:
            return SandboxTrial(nothing(error.message))
        except OSError as error:
            return SandboxTrial(nothing(self._away(error).message))
        except pydantic.ValidationError:
            where = "journalctl -u 'kakeya-run@*'"
            return SandboxTrial(nothing(f"the service behind {self._path} gave no answer; {where}"))

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
        except OSError as error:
            connection.close()
            raise self._away(error) from error
        return connection

    def _away(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"no supervisor of runs at {self._path}: {error.strerror or error}",
            remedy="systemctl status kakeya-run.socket; sandbox.socket in policy.toml names it",
        )


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
