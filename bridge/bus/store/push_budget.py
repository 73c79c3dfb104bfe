"""The push budget of a host: hosted remotes advise about six pushes a minute for one repository.

All runners of a host share a small file of recent pushes. A push that decides something (a claim, a start, an end) is
never held back, but it is counted, so that what can wait (log, lease, beacon) waits for it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bridge.system.clock import Clock

WINDOW_S: Final = 60.0
LOCAL_PAUSE_S: Final = 0.25
_KEPT: Final = 64  # more than any budget allows in a window


class Pacer:
    """Counts pushes and says how long the next one should wait.

    Args:
        path: the file shared by the runners of this host, or None where pushes are free (a local remote).
        per_minute: the budget.
        clock: steady seconds are written, which all processes since boot share.
        is_near: returns whether the remote answers as only this machine does, although its route does not say so.
    """

    def __init__(
        self, path: Path | None, per_minute: float, clock: Clock, is_near: Callable[[], bool] = lambda: False
    ) -> None:
        self._path = path
        self._is_near = is_near
        self._per_minute = per_minute
        self._clock = clock
        self._last_s = float("-inf")
        self._turns = 0

    @property
    def hosted(self) -> bool:
        """Whether pushes to this remote are counted, because somebody else's machine carries them."""
        return self._path is not None and not self._is_near()

    def wait_s(self) -> float:
        """Return the seconds after which a push that can wait may go; 0 means now."""
        if not self.hosted:
            return max(0.0, self._last_s + LOCAL_PAUSE_S - self._clock.steady_s())
        with self._recent() as (pushes, now):
            return self._wait_s(pushes, now)

    def _wait_s(self, pushes: list[float], now: float) -> float:
        # The oldest of the last `per_minute` pushes has to leave the window first.
        budget = max(1, int(self._per_minute))
        spaced = pushes[-1] + WINDOW_S / self._per_minute - now if pushes else 0.0
        full = pushes[-budget] + WINDOW_S - now if len(pushes) >= budget else 0.0
        return max(0.0, spaced, full)

    def take_turn(self) -> bool:
        """Count a push that can wait before it is made, if it may go now: no other process gets the same turn."""
        if not self.hosted:
            return self.wait_s() == 0.0
        with self._recent() as (pushes, now):
            if self._wait_s(pushes, now) > 0.0:
                return False
            pushes.append(now)
            self._turns += 1
            return True

    def pushed(self) -> None:
        """Count a push, unless it was counted when it got its turn."""
        self._last_s = self._clock.steady_s()
        if self._turns:
            self._turns -= 1
        elif self.hosted:
            with self._recent() as (pushes, now):
                pushes.append(now)

    @contextmanager
    def _recent(self) -> Iterator[tuple[list[float], float]]:
        """Hold the file's lock; times from before a reboot, later than now, are dropped.

        The clock is read under the lock: a moment from before it would take a neighbour's newer turn for an old one.
        """
        assert self._path is not None  # noqa: S101
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+", encoding="ascii") as stream:
            with suppress(OSError):  # without locks, two that push at once may count one
                fcntl.flock(stream, fcntl.LOCK_EX)
            now = self._clock.steady_s()
            pushes = [pushed_s for pushed_s in _numbers(stream.read(8192)) if now - WINDOW_S < pushed_s <= now]
            before = list(pushes)
            yield pushes, now
            if pushes != before:
                stream.seek(0)
                stream.truncate()
                json.dump(pushes[-_KEPT:], stream)


def _numbers(text: str) -> list[float]:
    """Return the times in the file; a file cut short by a crash is read as empty, which costs one early push."""
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return []
    return (
        sorted(float(number) for number in value if isinstance(number, int | float)) if isinstance(value, list) else []
    )
