"""Stop and continue a process tree when the other side of a pipe asks for it.

The asking side is host code in a sandbox of its own, which can signal no process outside it. Who is stopped may have
set a timer that sends SIGCONT (timer_create(2)): nobody has stood still who was on a processor meanwhile.
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
_DEAD: Final = frozenset((b"Z", b"X"))
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_RAN_MOST_S: Final = 0.01  # all threads together: one that was seen to stop is still on its way off the processor
_CLOCK: Final = SystemClock()


class Holder:
    """Follows the asks of one pipe in a thread of its own.

    Attributes:
        suspensions: when everything stood still, from and to, in seconds of the run.
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
        self._spent_s: dict[int, float] = {}
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
        stood_still = self._over()
        if ask == HOLD and stop(self._root()):
            self._spent_s, self._since_s = _processor_s(self._root()), self._elapsed_s()
            return True
        _signal(self._root(), signal.SIGCONT)
        return ask == RELEASE and stood_still

    def _over(self) -> bool:
        """End a suspension; return False, and keep nothing of it, where somebody ran meanwhile."""
        if self._since_s is None:
            return True
        span = (self._since_s, self._elapsed_s())
        self._since_s = None
        stood_still = not _ran(self._spent_s, _processor_s(self._root()))
        self.suspensions += [span] if stood_still else []
        return stood_still


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
    return all(fields[0] in _STILL for _, fields in _threads(pid))


def _processor_s(root: int) -> dict[int, float]:
    """Return by thread how long those of a process's descendants that are not dead have been on a processor."""
    return {
        int(thread.name): _on_processor_s(thread, fields)
        for process in _descendants(root)
        for thread, fields in _threads(process.pid)
        if fields[0] not in _DEAD
    }


def _on_processor_s(thread: Path, fields: list[bytes]) -> float:
    """Return what the kernel says of a thread: in nanoseconds where it counts them, else in ticks."""
    counted_s = 0.0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        counted_s = int((thread / "schedstat").read_bytes().split()[0]) / 1e9
    return max(counted_s, (int(fields[11]) + int(fields[12])) / _TICKS_S)  # proc(5): utime, stime


def _ran(before: dict[int, float], after: dict[int, float]) -> bool:
    """Whether threads began or ended between two readings, or were on a processor."""
    return before.keys() != after.keys() or sum(after[tid] - before[tid] for tid in after) > _RAN_MOST_S


def _threads(pid: int) -> Iterator[tuple[Path, list[bytes]]]:
    """Yield the folder of each thread, and the fields of its stat from its state on."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield thread, (thread / "stat").read_bytes().rpartition(b")")[2].split()
