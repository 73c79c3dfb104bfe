"""Run a command and leave none of its descendants, however it ends: `python -m tests.support.keeper PROGRAM ...`.

A killed pytest cannot end what its tests started: hosts that serve on by themselves, and the process that others part
from. On Linux whatever loses its parent becomes a child of this process, a subreaper (prctl(2)), and is killed when
the command has ended. Elsewhere only the descendants at that moment are found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from bridge.executor.processes.subreaper import PR_SET_CHILD_SUBREAPER, prctl

_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_KILLED_WITHIN_S = 20.0
_PAUSE_S = 0.02


def keep(argv: Sequence[str]) -> int:
    """Run a command to its end, end what it leaves behind, and return its exit code, 128 + n after signal n."""
    if sys.platform == "linux":
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    pids: list[int] = []
    early: list[int] = []

    def forward(number: int, _frame: object) -> None:
        early.append(number)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    # A terminal sends its interrupt to the command as well, which then ends in its own way.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    command = subprocess.Popen(argv)
    pids.append(command.pid)
    for number in tuple(early):
        os.kill(command.pid, number)
    status = _reap_until(command.pid)
    pids.clear()
    end_descendants()
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _reap_until(pid: int) -> int:
    """Reap whoever becomes a child of this process until a command ends; return its wait status."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def end_descendants() -> None:
    """Kill what is left, again and again, as long as what is killed leaves children of its own."""
    me, until_s = psutil.Process(), time.monotonic() + _KILLED_WITHIN_S
    names: dict[int, str] = {}
    while (left := me.children(recursive=True)) and time.monotonic() < until_s:
        for process in left:
            with suppress(psutil.Error):
                names.setdefault(process.pid, " ".join(process.cmdline())[:120])
                process.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(_PAUSE_S)
    for pid, name in names.items():
        print(f"ended with the command that started it: {pid} {name}", file=sys.stderr)
    for process in left:
        print(f"could not be ended: {process.pid}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
