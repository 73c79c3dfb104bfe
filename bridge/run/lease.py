"""Leases without timestamps: an observer trusts its own clock and what it has seen, an owner its last acknowledgement.

Knows no bus; both clocks count through sleep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge.limits import BEACON_LIVE_INTERVALS, BEACON_LIVE_SLACK_S, LEASE_LISTINGS_COUNT, LEASE_MARGIN_SHARE
from bridge.system.clock import Clock

if TYPE_CHECKING:
    from bridge.records.bus import Beacon, BusRecord

_TIPS_MAX_COUNT: Final = 64
_BEACON_INTERVAL_MAX_S: Final = 3600.0  # a runner that claims to be silent for longer is believed no more than this


@dataclass
class _Watched:
    """A claim ref as it was listed: its tips with when each was first listed, and the highest claim that was read."""

    tips: dict[str, tuple[float, int]]
    listings: int
    since: tuple[float, int]
    position: tuple[int, int] | None = None


class LeaseWatch:
    """Measures how long the claims of others have not moved on, for a runner and for a requester who waits.

    Only a claim that stands higher in its chain begins a lease anew: tips that are pushed again, by whomever, keep no
    dead run alive. Time in which the bus could not be listed is not held against a runner: a lease has run out when
    its seconds have passed and the bus was listed a few times meanwhile.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[str, _Watched] = {}

    def listed(self, tips: Mapping[str, str]) -> None:
        """Note what a listing shows, {run id: tip}; what it does not show is forgotten."""
        now_s = self._clock.steady_s()
        self._watched = {run_id: watched for run_id, watched in self._watched.items() if run_id in tips}
        for run_id, oid in tips.items():
            watched = self._watched.get(run_id)
            if watched is None:
                self._watched[run_id] = _Watched({oid: (now_s, 0)}, 0, (now_s, 0))
                continue
            watched.listings += 1
            watched.tips.setdefault(oid, (now_s, watched.listings))
            while len(watched.tips) > _TIPS_MAX_COUNT:
                watched.tips.pop(next(iter(watched.tips)))

    def read(self, run_id: str, oid: str, position: tuple[int, int]) -> None:
        """Note where in its chain a tip stands that was listed, (sequence, beat)."""
        watched = self._watched.get(run_id)
        if watched is None or (watched.position is not None and position <= watched.position):
            return
        if watched.position is not None:
            watched.since = watched.tips.get(oid, watched.since)
        watched.position = position

    def expired(self, run_id: str, lease_s: float) -> bool:
        """Return whether a run's claim has not moved on for a whole lease."""
        watched = self._watched.get(run_id)
        if watched is None:
            return False
        since_s, listings = watched.since
        return self._clock.steady_s() - since_s > lease_s and watched.listings - listings >= LEASE_LISTINGS_COUNT


def beacon_interval_s(beacon: Beacon, record: BusRecord) -> float:
    """Return after how many seconds the next beacon is due, whoever wrote this one."""
    return min(beacon.interval_s or record.beacon_interval_s, _BEACON_INTERVAL_MAX_S)


def beacon_counts_s(beacon: Beacon, record: BusRecord) -> float:
    """Return for how many seconds after its time a beacon says that its runner lives."""
    return BEACON_LIVE_INTERVALS * beacon_interval_s(beacon, record) + BEACON_LIVE_SLACK_S


class OwnLease:
    """Tells the owner of a claim when to stop: a margin before an observer could take the claim away.

    Attributes:
        bound_s: how long after a push was asked the claim is the owner's.
    """

    def __init__(self, clock: Clock, lease_s: float, asked_s: float) -> None:
        """Start from an acknowledged push that was asked at `asked_s` on the steady clock."""
        self._clock = clock
        self.bound_s = _bound_s(lease_s)
        self._asked_s = asked_s

    def renewed(self, asked_s: float, lease_s: float) -> None:
        """Note an acknowledged push and the lease it asked for; it counts from when it was asked, not answered."""
        if asked_s >= self._asked_s:
            self._asked_s, self.bound_s = asked_s, _bound_s(lease_s)

    def lost(self) -> bool:
        """Return whether the lease may no longer be relied on."""
        return self._clock.steady_s() - self._asked_s > self.bound_s

    def due_in_s(self) -> float:
        """Return when the next renewal should be asked: after a third of the time that is left to the owner."""
        return max(0.0, self._asked_s + self.bound_s / 3 - self._clock.steady_s())


def _bound_s(lease_s: float) -> float:
    """Return how long a lease is its owner's: the margin before an observer could take the claim away is not."""
    return lease_s * (1 - LEASE_MARGIN_SHARE)
