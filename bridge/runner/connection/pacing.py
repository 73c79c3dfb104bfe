"""When to push and when to look, and how long a lease this remote needs: from its name and from how it answers.

Knows times and outcomes, no bus.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from bridge.limits import LEASE_MIN_S, LEASE_PUSHES, LEASE_SAMPLE_COUNT, PUSHES_PER_MINUTE_HOSTED
from bridge.system.clock import Clock

_NEAR_PUSH_S: Final = 1.0
_BACKOFF_MAX_S: Final = 120.0
_FAST_POLL_S: Final = 0.1
_NEAR_POLL_S: Final = 0.5
_BUSY_POLL_S: Final = 1.0  # on the machine that measures, looking for cancels must not be what is measured
_HOSTED_POLL_S: Final = (5.0, 15.0)
_GLANCE_S: Final = (0.005, 0.02)  # while polling is fast, and later
_POLL_SHARE: Final = 4.0  # a listing is followed by a pause of so many times what it took
_ACTIVE_S: Final = 20.0  # how long after the last event polling stays fast
_SHRINK: Final = 0.9  # what is left of a lease after a push that was quicker than it needs


class MeasuredLease:
    """The lease of the next run: as long as some slow pushes to this remote take.

    It grows at once and shrinks slowly, and a run keeps the one it began with.

    Args:
        longest_s: the bus record's.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._shortest_s = min(LEASE_MIN_S, longest_s)
        self._took_s: deque[float] = deque(maxlen=LEASE_SAMPLE_COUNT)
        self.seconds = self._shortest_s

    def pushed(self, took_s: float) -> None:
        """Note how long a push took, answered or not."""
        self._took_s.append(took_s)
        slow_s = sorted(self._took_s)[-1 - len(self._took_s) // 100]
        wanted_s = min(max(LEASE_PUSHES * slow_s, self._shortest_s), self._longest_s)
        self.seconds = wanted_s if wanted_s >= self.seconds else max(wanted_s, self.seconds * _SHRINK)


class PushBudget:
    """Spaces the pushes of all runs of one runner; failures stretch the space, a success restores it.

    Args:
        clock: times them.
        hosted: whether pushes to this remote are to be spared.
        lease_s: the longest lease of this bus.
    """

    def __init__(self, clock: Clock, lease_s: float, *, hosted: bool) -> None:
        self._clock = clock
        self._interval_s = 60.0 / PUSHES_PER_MINUTE_HOSTED if hosted else _NEAR_PUSH_S
        self._lease = MeasuredLease(lease_s)
        self._stretch = 1.0
        self._last_s = float("-inf")
        self._lock = threading.Lock()

    def wait_s(self, *, urgent: bool = False) -> float:
        """Return how long a push should wait; failures do not stretch the wait of one that a lease depends on."""
        with self._lock:
            stretch = 1.0 if urgent else self._stretch
            interval_s = min(self._interval_s * stretch, max(_BACKOFF_MAX_S, self._interval_s))
            return max(0.0, self._last_s + interval_s - self._clock.steady_s())

    def lease_s(self) -> float:
        """Return the lease that a run should take now."""
        with self._lock:
            return self._lease.seconds

    def measured(self, took_s: float) -> None:
        """Note how long a push took that is not spaced."""
        with self._lock:
            self._lease.pushed(took_s)

    def spent(self, *, ok: bool, took_s: float | None = None) -> None:
        """Count a push that was tried, and how long it took where that is known."""
        with self._lock:
            if took_s is not None:
                self._lease.pushed(took_s)
            self._last_s = self._clock.steady_s()
            self._stretch = 1.0 if ok else min(self._stretch * 2, 64.0)


class PollPace:
    """How long to wait before the next listing: short after something happened, longer when nothing does."""

    def __init__(self, clock: Clock, *, hosted: bool) -> None:
        self._clock, self._hosted = clock, hosted
        self._took_s = 0.0
        self._failures = 0
        self._active_s = clock.steady_s()

    def happened(self) -> None:
        """Note that there was something to do."""
        self._active_s = self._clock.steady_s()

    def listed(self, *, ok: bool, took_s: float = 0.0) -> None:
        """Note whether the bus could be listed, and how long that took."""
        self._took_s = took_s
        self._failures = 0 if ok else self._failures + 1

    def glance_s(self) -> float:
        """Return the pause between two looks at the folders of a bus on this machine."""
        return _GLANCE_S[not self._is_active()]

    def _is_active(self) -> bool:
        return self._clock.steady_s() - self._active_s < _ACTIVE_S

    def wait_s(self, *, busy: bool) -> float:
        """Return the wait before the next listing; `busy` while a run is going on."""
        active = self._is_active()
        if self._hosted:
            usual_s = _HOSTED_POLL_S[0] if active else _HOSTED_POLL_S[1]
        elif busy:
            usual_s = _BUSY_POLL_S
        else:
            usual_s = _FAST_POLL_S if active else _NEAR_POLL_S
        usual_s = max(usual_s, min(_POLL_SHARE * self._took_s, _HOSTED_POLL_S[1]))
        return min(usual_s * 2.0 ** min(self._failures, 10), max(60.0, usual_s))
