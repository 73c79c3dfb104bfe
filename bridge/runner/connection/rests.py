"""How long what failed rests before it is tried again: each failure doubles that, up to a bound."""

from __future__ import annotations

import threading
from collections.abc import Collection

from bridge.system.clock import Clock


class Rests:
    """The runs that failed and are to be tried again.

    Args:
        clock: times the rests.
        first_s: the rest after the first failure.
        most_s: the longest rest.
    """

    def __init__(self, clock: Clock, first_s: float, most_s: float) -> None:
        self._clock, self._first_s, self._most_s = clock, first_s, most_s
        self._until_s: dict[str, float] = {}
        self._rest_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def failed(self, run_id: str) -> float:
        """Let a run rest after another failure; return for how many seconds."""
        with self._lock:
            rest_s = min(2 * self._rest_s.get(run_id, self._first_s / 2), self._most_s)
            self._rest_s[run_id], self._until_s[run_id] = rest_s, self._clock.steady_s() + rest_s
            return rest_s

    def resting(self) -> frozenset[str]:
        """Return the runs that are not to be tried now."""
        now_s = self._clock.steady_s()
        with self._lock:
            return frozenset(run_id for run_id, until_s in self._until_s.items() if now_s < until_s)

    def forget_but(self, run_ids: Collection[str]) -> None:
        """Forget the failures of all other runs."""
        with self._lock:
            for known in (self._until_s, self._rest_s):
                for run_id in [one for one in known if one not in run_ids]:
                    del known[run_id]
