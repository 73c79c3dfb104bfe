"""Stop and continue a process tree when the other side of a pipe asks for it.

The asking side is host code in a sandbox of its own, which can signal no process outside it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

from bridge.system.clock import SystemClock

HOLD, RELEASE = b"h", b"r"
DONE, FAILED = b"k", b"x"
_WITHIN_S: Final = 5.0
_STILL: Final = frozenset((b"T", b"t", b"Z", b"X"))
_CLOCK: Final = SystemClock()


class Holder:
    """Follows the asks of one pipe in a thread of its own.

    Attributes:
        held: when everything stood still, from and to, in seconds of the run.
    """

    def __init__(self, asks: int, answers: int, root: Callable[[], int], elapsed_s: Callable[[], float]) -> None:
        """Prepare to listen.

        Args:
            asks: descriptor that a byte an ask is read from; its end ends the thread.
            answers: descriptor that a byte an answer is written to.
            root: returns the process whose descendants are meant.
            elapsed_s: returns the seconds since the run's start.
        """
        self.suspensions: list[tuple[float, float]] = []
        self._asks, self._answers, self._root, self._elapsed_s = asks, answers, root, elapsed_s
        self._since_s: float | None = None
        self._thread = threading.Thread(target=self._listen, name="kakeya-holder", daemon=True)

    def __enter__(self) -> Holder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the end of the pipe, whose writers are dead by now."""
        self._thread.join()
        self._over()

    def _listen(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            while ask := os.read(self._asks, 1):
                os.write(self._answers, DONE if self._follow(ask) else FAILED)

    def _follow(self, ask: bytes) -> bool:
        self._over()
        if ask == HOLD and stop(self._root()):
            self._since_s = self._elapsed_s()
            return True
        _signal(self._root(), signal.SIGCONT)
        return ask == RELEASE

    def _over(self) -> None:
        if self._since_s is not None:
            self.suspensions.append((self._since_s, self._elapsed_s()))
            self._since_s = None


def stop(root: int, within_s: float = _WITHIN_S) -> bool:
    """Stop all descendants of a process; return whether each of their threads was seen to stand still."""
    deadline = _CLOCK.steady_s() + within_s
    while True:
        # Who forked meanwhile is found by the next look; who stands still cannot fork.
        moving = [process for process in _descendants(root) if not _is_still(process.pid)]
        if not moving:
            return True
        if _CLOCK.steady_s() >= deadline:
            return False
        for process in moving:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        _CLOCK.sleep(0.001)


def _signal(root: int, number: int) -> None:
    for process in _descendants(root):
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _descendants(root: int) -> list[psutil.Process]:
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.Error:
        return []


def _is_still(pid: int) -> bool:
    """Whether every thread is stopped or dead; a process whose first thread has ended can go on in others."""
    return all(state in _STILL for state in _states(pid))


def _states(pid: int) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield (thread / "stat").read_bytes().rpartition(b")")[2].split()[0]
