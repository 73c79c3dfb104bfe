"""Leases without timestamps: an observer trusts its own clock and what it has seen, an owner its last acknowledgement.

Knows no bus; both clocks count through sleep.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.limits import LEASE_MARGIN_SHARE
from bridge.system.clock import Clock


class LeaseWatch:
    """Measures how long the claims of others have not changed, for a runner and for a requester who waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def expired(self, run_id: str, oid: str, lease_s: float) -> bool:
        """Return whether this claim tip has been seen unchanged for its whole lease."""
        now_s = self._clock.steady_s()
        known = self._seen.get(run_id)
        if known is None or known[0] != oid:
            self._seen[run_id] = (oid, now_s)
            return False
        return now_s - known[1] > lease_s

    def forget_all_but(self, run_ids: Iterable[str]) -> None:
        """Keep only these runs in memory."""
        kept = set(run_ids)
        self._seen = {run_id: seen for run_id, seen in self._seen.items() if run_id in kept}


class OwnLease:
    """Tells the owner of a claim when to stop: a margin before an observer could take the claim away."""

    def __init__(self, clock: Clock, lease_s: float, asked_s: float) -> None:
        """Start from an acknowledged push that was asked at `asked_s` on the steady clock."""
        self._clock = clock
        self._bound_s = lease_s * (1 - LEASE_MARGIN_SHARE)
        self._asked_s = asked_s

    def renewed(self, asked_s: float) -> None:
        """Note an acknowledged push; what counts is when it was asked, not when the answer came."""
        self._asked_s = max(self._asked_s, asked_s)

    def lost(self) -> bool:
        """Return whether the lease may no longer be relied on."""
        return self._clock.steady_s() - self._asked_s > self._bound_s

    def due_in_s(self) -> float:
        """Return when the next renewal should be asked: after a third of the time that is left to the owner."""
        return max(0.0, self._asked_s + self._bound_s / 3 - self._clock.steady_s())
