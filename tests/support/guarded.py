"""Servers that end with the tests, also where those are killed.

A guard stands between: it holds the reading end of a pipe whose other end only the tests hold, and ends the server's
process group when nobody holds that one any more. The kernel closes it for a process that died by KILL, too.

Run as a program: `guarded.py COMMAND...`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

GRACE_S = 2.0


def start(
    command: Sequence[str | Path],
    *,
    stderr: IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server behind a guard and return the guard, whose exit code is the server's.

    Args:
        command: the server's program, which stays in the foreground, and its arguments.
        stderr: where its messages go; its output goes nowhere.
        env: its whole environment, or None for this one.
        cwd: the folder it starts in, or None for this one.
    """
    # In a session of its own: Ctrl-C at a terminal must not end the guard before its server.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=None if env is None else dict(env),
        cwd=cwd,
        start_new_session=True,
    )


def stop(guard: subprocess.Popen[bytes]) -> None:
    """End a server and return when it is gone."""
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(timeout=240)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Wait until nobody holds the other end, then end the server's process group."""
    while os.read(0, 1):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(timeout=GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


def main() -> int:
    """Run the command until it ends or the tests do."""
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    ending = threading.Thread(target=_end, args=(server,), daemon=True)
    ending.start()
    code = server.wait()
    # What it started is in its group, and goes with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
