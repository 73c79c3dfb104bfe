"""Start processes that hold runs as users of the range in /etc/subuid: what a service manager does, where none is."""

from __future__ import annotations

import os
import socket
import sys
import threading
from importlib import metadata
from pathlib import Path

import bridge
from bridge.executor.holder.server import SupervisorServer, passed_on
from bridge.executor.interface import HostPaths
from bridge.executor.processes.own_user import OwnUsers, own_range
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.user import closed_to


class OwnUserProcesses:
    """Forks of a server that has imported everything, each of them another user.

    Args:
        locks: a folder of this user's, in which the users that runs are at the moment are locked.
        paths: what such a user has to reach: the interpreter and what every run may read.
    """

    def __init__(self, locks: Path, paths: HostPaths) -> None:
        self._locks = locks
        self._paths = paths
        self._starting = threading.Lock()
        self._server: SupervisorServer | None = None

    def connect(self) -> socket.socket:
        """Start a process; return the connection over which it takes orders.

        Raises:
            SandboxUnavailableError: this user has no range, or nothing that may hand it out.
            InfrastructureError: the server cannot be started.
        """
        with self._starting:
            if self._server is None:
                self._server = SupervisorServer(metadata.version("kakeya"), passed_on(), self._users())
        return self._server.unit()

    def _users(self) -> OwnUsers:
        numbers = own_range()
        declared = allow_list([self._paths.interpreter or sys.executable], self._paths.read_only).declared
        ours = (sys.prefix, os.path.realpath(sys.base_prefix), str(Path(bridge.__file__).parents[1]))
        closed = closed_to(numbers.user(0)[0], dict.fromkeys((*ours, *declared)))
        return OwnUsers(
            numbers, str(self._locks), tuple(dict.fromkeys(closed.values())), {path: path for path in closed}
        )
