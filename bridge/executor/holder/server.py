"""Start supervisors quickly: a process that has imported everything and is forked once a run.

A fresh interpreter needs a third of a second of processor time for its imports, a fork some milliseconds. The server
has one thread, so a fork copies no lock that is held. It ends with its runner; the supervisors it made do not.

Where runs are users of the range in /etc/subuid, a fork becomes such a user and does what a service manager's unit does
(`run_unit`), for a connection of its own.

Run as `python -I -m bridge.executor.holder.server DESCRIPTOR VERSION [OWN_USERS]`.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.holder.folder import FolderFiles, make_durable
from bridge.executor.holder.program import READY, hung_up, preload, supervise, told_to_go
from bridge.executor.holder.run_unit import refuse, serve
from bridge.executor.interface import RunDirectory
from bridge.executor.processes.own_user import OwnUsers, become
from bridge.system.process import Child

SUPERVISE: Final = b"s"
UNIT: Final = b"u"
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
        own_users: how its forks become users of their own; None where supervisors are this user.
    """

    def __init__(self, version: str, environment: Mapping[str, str], own_users: OwnUsers | None = None) -> None:
        self._version = version
        self._environment = dict(environment)
        self._own_users = own_users
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
        return self._ask(SUPERVISE, files.all())

    def unit(self) -> socket.socket:
        """Have a process made that becomes a user of its own; return the connection over which it takes orders.

        Raises:
            InfrastructureError: there is no server and none can be started.
        """
        return self._ask(UNIT, ())

    def _ask(self, order: bytes, descriptors: Sequence[int]) -> socket.socket:
        ours, its = socket.socketpair()
        with self._lock, its:
            try:
                socket.send_fds(self._running().connection, [order], [*descriptors, its.fileno()])
            except OSError as error:
                ours.close()
                raise InfrastructureError(f"the supervisors' server has gone: {error.strerror}") from error
        return ours

    def _running(self) -> _Process:
        if self._process is None or self._process.child.poll() is not None:
            self._end()
            ours, its = socket.socketpair()
            with its:
                words = [] if self._own_users is None else [self._own_users.dump()]
                child = Child(
                    [sys.executable, "-I", "-m", __name__, str(its.fileno()), self._version, *words],
                    env=self._environment,
                    cwd="/",
                    output_fd=2,
                    pass_fds=(its.fileno(),),
                )
            self._process = _Process(child, ours)
            self._end = weakref.finalize(self, self._process.end)
        return self._process


def passed_on() -> dict[str, str]:
    """Return what supervisors see of this process's environment."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


def supervisor_server(version: str) -> SupervisorServer:
    """Return the server that this process's executors share.

    Args:
        version: of the installed bridge.
    """
    return _server(version, tuple(passed_on().items()))


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


def main(descriptor: int, version: str, own_users: OwnUsers | None = None) -> None:
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
        message, descriptors, _flags, _address = socket.recv_fds(connection, 1, _COUNT + 1)
        if not message:
            return
        for passed in descriptors:
            os.set_inheritable(passed, False)
        if os.fork() == 0:
            connection.close()
            _become(descriptors, version, own_users if message == UNIT else None)
        for passed in descriptors:
            os.close(passed)


def _become(descriptors: list[int], version: str, own_users: OwnUsers | None) -> None:
    """Be the supervisor of one run, or what holds runs as another user; never returns."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (1, 2):
            os.dup2(nothing, standard)
        if own_users is not None:
            code = _hold_runs(socket.socket(fileno=descriptors[0]), own_users)
            return
        files, connection = FolderFiles(*descriptors[:_COUNT]), socket.socket(fileno=descriptors[_COUNT])
        supervise(files, version, lambda: told_to_go(connection), is_alone=lambda: hung_up(connection))
        os.close(files.lock)  # before the connection: who sees its end finds the folder free
        connection.close()
        make_durable(files)
        code = 0
    finally:
        os._exit(code)


def _hold_runs(connection: socket.socket, own_users: OwnUsers) -> int:
    """Become a user of the range and take orders; who cannot answers the first one with the reason."""
    try:
        become(own_users)
    except SandboxUnavailableError as error:
        return refuse(connection, error)
    return serve(connection)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(OwnUsers.load, sys.argv[3:]))
