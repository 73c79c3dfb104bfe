"""A stub of a service manager's socket: each connection starts what answers in a run's unit, as another user."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bridge.executor.processes.subreaper import stage
from bridge.executor.sandbox.user import closed_to

ROOT = Path(__file__).parents[2]
UID = 65532
# What systemd does with Accept=yes and StandardInput=socket.
MANAGER = """
import socket, subprocess, sys
listener = socket.socket(fileno=0)
while True:
    connection, _ = listener.accept()
    subprocess.Popen(sys.argv[1:], stdin=connection)
    connection.close()
"""
AS_UNIT = (
    *("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"),
    *("--inh-caps=-all", sys.executable, "-I", "-m", "bridge.executor.holder.run_unit"),
)


def open_the_way(reachable: Sequence[Path] = ()) -> None:
    """Let the unit's user come to this interpreter and to further folders, in a mount namespace of its own."""
    needed = dict.fromkeys(map(str, (sys.prefix, os.path.realpath(sys.base_prefix), ROOT, *reachable)))
    closed = closed_to(UID, needed)
    stage(list(dict.fromkeys(closed.values())), {path: path for path in closed})


@contextmanager
def listening(path: Path, reachable: Sequence[Path] = ()) -> Iterator[str]:
    """Listen at a socket while the block lasts; the units that were started go on after it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        manager = subprocess.Popen(
            [sys.executable, "-c", MANAGER, *AS_UNIT],
            stdin=listener,
            preexec_fn=lambda: open_the_way(reachable),  # noqa: PLW1509
            cwd="/",
        )
    try:
        yield str(path)
    finally:
        manager.kill()
        manager.wait()
