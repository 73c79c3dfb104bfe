"""Clocks: wall time for people, a suspend-counting clock for leases.

Knows nothing about leases. No lease is decided by a timestamp of another machine.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import time
from dataclasses import dataclass
from typing import Final, Protocol

from bridge.ids import MOMENT_PATTERN

_STEP_LEAST_S: Final = 1.0  # less is what a time service takes back unnoticed
_MOMENT: Final = re.compile(MOMENT_PATTERN)


class Clock(Protocol):
    """What the bridge needs to know about time; a fake in tests."""

    def now(self) -> dt.datetime:
        """Return the wall time, UTC, with microseconds."""
        ...

    def steady_s(self) -> float:
        """Return seconds of a clock that never jumps and goes on counting while the machine sleeps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for about this many seconds."""
        ...


class SystemClock:
    """The machine's clocks.

    The steady clock is CLOCK_BOOTTIME on Linux; on macOS CLOCK_MONOTONIC, which counts through sleep there.
    """

    def __init__(self) -> None:
        self._steady_id = time.CLOCK_MONOTONIC if sys.platform == "darwin" else time.CLOCK_BOOTTIME

    def now(self) -> dt.datetime:
        """Return the wall time, UTC."""
        return dt.datetime.now(dt.UTC)

    def steady_s(self) -> float:
        """Return seconds since boot, sleep included."""
        return time.clock_gettime(self._steady_id)

    def sleep(self, seconds: float) -> None:
        """Wait; a negative time is none."""
        time.sleep(max(0.0, seconds))


@dataclass(frozen=True)
class ClockReading:
    """Both clocks at one moment."""

    now: dt.datetime
    steady_s: float

    @classmethod
    def of(cls, clock: Clock) -> ClockReading:
        """Return what both clocks say now."""
        return cls(clock.now(), clock.steady_s())

    def set_back_s(self, clock: Clock) -> float:
        """Return by how many seconds the wall clock was set back since; 0 where it kept step to a second."""
        then = ClockReading.of(clock)
        lost_s = then.steady_s - self.steady_s - (then.now - self.now).total_seconds()
        return lost_s if lost_s > _STEP_LEAST_S else 0.0


def rfc3339(moment: dt.datetime) -> str:
    """Return a UTC moment as RFC 3339 (section 5.6) with milliseconds, e.g. ``2026-11-20T10:07:00.123Z``."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> dt.datetime:
    """Return the moment of an RFC 3339 UTC text.

    Raises:
        ValueError: not RFC 3339, or not UTC (``Z``).
    """
    if _MOMENT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is no time in UTC; expected one such as 2026-11-20T10:07:00.123Z")
    return dt.datetime.fromisoformat(text)
