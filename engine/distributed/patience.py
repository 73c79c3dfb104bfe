"""How long a draft from elsewhere may take before it is given up, by how long drafts took lately. Knows no clocks."""

from __future__ import annotations

from collections import deque

LEAST_S = 0.25
"""Less is a hiccup of a link or a scheduler: giving up costs another session."""
TIMES = 2.0
"""How many times the slowest draft of late another may take."""
NEWEST = 16
"""Drafts that count as late ones: the first of a session takes a whole prompt along, and is forgotten in time."""


class Patience:
    """Seconds that a draft may take which plain decoding goes on beside: what hangs may slow that for as long.

    Args:
        most_s: what a server may take before any draft came, and for a draft that is waited for without a bound.
    """

    def __init__(self, most_s: float) -> None:
        self.most_s = most_s
        self._newest_s: deque[float] = deque(maxlen=NEWEST)

    def learn(self, came_s: float) -> None:
        """Take how long a draft took that came."""
        self._newest_s.append(came_s)

    @property
    def seconds(self) -> float:
        """How long the next may take."""
        if not self._newest_s:
            return self.most_s
        return min(self.most_s, max(LEAST_S, TIMES * max(self._newest_s)))
