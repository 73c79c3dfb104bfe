"""Start supervisors quickly: a process that has imported everything and is forked once a run.

A fresh interpreter needs a third of a second of processor time for its imports, a fork some milliseconds. The server
has one thread, so a fork copies no lock that is held. It ends with its runner; the supervisors it made do not.

Run as `python -I -m bridge.executor.supervisor.server DESCRIPTOR VERSION`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.errors import InfrastructureError
from bridge.executor.interface import RunDirectory
from bridge.executor.supervisor.folder import FolderFiles, make_durable
from bridge.executor.supervisor.program import preload, supervise
from bridge.system.process import Child

GO: Final = b"g"
READY: Final = b"r"
_COUNT: Final = len(FolderFiles.__dataclass_fields__)
_READY_S: Final = 30.0
_PASSED: Final = ("HOME", "LANG", "PATH", "TMPDIR")


@dataclass(frozen=True)
class _Process:
    """A server that runs, and the connection to it."""

    child: Child
    connection: socket.socket

    def end(self) -> None:
        """End it; the supervisors it made go on."""
        self.connection.close()
        self.child.kill()


class SupervisorServer:
    """The runner's end: asks for a supervisor of a folder. The server ends with the last reference to this.

    Args:
        version: of the installed bridge.
        environment: what supervisors see of the runner's own.
    """

    def __init__(self, version: str, environment: Mapping[str, str]) -> None:
        self._version = version
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._end: Callable[[], object] = lambda: None

    def warm(self) -> None:
        """Start the server, unless it runs.

        Raises:
            InfrastructureError: it cannot be started.
        """
        with self._lock:
            self._running()

    def start(self, files: FolderFiles, _directory: RunDirectory) -> socket.socket:
        """Have a supervisor made for a folder; return the connection on which it says ready and is told to go.

        Raises:
            InfrastructureError: there is no server and none can be started.
        """
        ours, its = socket.socketpair()
        with self._lock, its:
            try:
                socket.send_fds(self._running().connection, [b"s"], [*files.all(), its.fileno()])
            except OSError as error:
                ours.close()
                raise InfrastructureError(f"the supervisors' server has gone: {error.strerror}") from error
        return ours

    def _running(self) -> _Process:
        if self._process is None or self._process.child.poll() is not None:
            self._end()
            ours, its = socket.socketpair()
            with its:
                child = Child(
                    [sys.executable, "-I", "-m", __name__, str(its.fileno()), self._version],
                    env=self._environment,
                    cwd="/",
                    output_fd=2,
                    pass_fds=(its.fileno(),),
                )
            self._process = _Process(child, ours)
            self._end = weakref.finalize(self, self._process.end)
        return self._process


def supervisor_server(version: str) -> SupervisorServer:
    """Return the server that this process's executors share.

    Args:
        version: of the installed bridge.
    """
    return _server(version, tuple((name, os.environ[name]) for name in _PASSED if name in os.environ))


@functools.lru_cache(maxsize=1)  # another environment ends the server before, once no executor uses it any more
def _server(version: str, environment: tuple[tuple[str, str], ...]) -> SupervisorServer:
    return SupervisorServer(version, dict(environment))


def ready(connection: socket.socket) -> bool:
    """Wait until the supervisor has taken the folder; False when it is not its to take."""
    connection.settimeout(_READY_S)
    try:
        return connection.recv(1) == READY
    except OSError:
        return False
    finally:
        connection.settimeout(None)


def main(descriptor: int, version: str) -> None:
    """Serve until the runner is gone."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects supervisors
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # of the runner's terminal; the end of the connection ends this
    preload()
    gc.collect()
    gc.freeze()
    while True:
        message, found, _flags, _address = socket.recv_fds(connection, 1, _COUNT + 1)
        if not message:
            return
        for passed in found:
            os.set_inheritable(passed, False)
        if os.fork() == 0:
            connection.close()
            _become(found, version)
        for passed in found:
            os.close(passed)


def _become(found: list[int], version: str) -> None:
    """Be the supervisor of one run; never returns."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (1, 2):
            os.dup2(nothing, standard)
        files, connection = FolderFiles(*found[:_COUNT]), socket.socket(fileno=found[_COUNT])

        def wait_for_go() -> bool:
            with contextlib.suppress(OSError):
                connection.sendall(READY)
                return connection.recv(1) == GO
            return False

        supervise(files, version, wait_for_go)
        os.close(files.lock)  # before the connection: who sees its end finds the folder free
        connection.close()
        make_durable(files)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
