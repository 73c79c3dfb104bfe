"""When to push and when to look: a budget for hosted remotes, sub-second only on local ones.

Knows times and outcomes, no bus.
"""

from __future__ import annotations

import threading

from bridge.limits import LEASE_LOCAL_S, PUSHES_PER_MINUTE_HOSTED
from bridge.system.clock import Clock

_LOCAL_PUSH_S = 1.0
_BACKOFF_MAX_S = 120.0
_FAST_POLL_S = 0.1
_LOCAL_POLL_S = 0.5
_BUSY_POLL_S = 1.0  # on the machine that measures, looking for cancels must not be what is measured
_HOSTED_POLL_S = (5.0, 15.0)
_ACTIVE_S = 20.0  # how long after the last event polling stays fast


class PushBudget:
    """Spaces the pushes of all runs of one runner; failures stretch the space, a success restores it."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._interval_s = _LOCAL_PUSH_S if lease_s <= LEASE_LOCAL_S else 60.0 / PUSHES_PER_MINUTE_HOSTED
        self._stretch = 1.0
        self._last_s = float("-inf")
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """Return how long a push that is not urgent should wait."""
        with self._lock:
            interval_s = min(self._interval_s * self._stretch, max(_BACKOFF_MAX_S, self._interval_s))
            return max(0.0, self._last_s + interval_s - self._clock.steady_s())

    def spent(self, *, ok: bool) -> None:
        """Count a push that was tried."""
        with self._lock:
            self._last_s = self._clock.steady_s()
            self._stretch = 1.0 if ok else min(self._stretch * 2, 64.0)


class PollPace:
    """How long to wait before the next listing: short after something happened, longer when nothing does."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._local = lease_s <= LEASE_LOCAL_S
        self._failures = 0
        self._active_s = clock.steady_s()

    def happened(self) -> None:
        """Note that there was something to do."""
        self._active_s = self._clock.steady_s()

    def listed(self, *, ok: bool) -> None:
        """Note whether the bus could be listed."""
        self._failures = 0 if ok else self._failures + 1

    def wait_s(self, *, busy: bool) -> float:
        """Return the wait before the next listing; `busy` while a run is going on."""
        active = self._clock.steady_s() - self._active_s < _ACTIVE_S
        if self._local and busy:
            usual_s = _BUSY_POLL_S
        elif self._local:
            usual_s = _FAST_POLL_S if active else _LOCAL_POLL_S
        else:
            usual_s = _HOSTED_POLL_S[0] if active else _HOSTED_POLL_S[1]
        return min(usual_s * 2.0 ** min(self._failures, 10), max(60.0, usual_s))
