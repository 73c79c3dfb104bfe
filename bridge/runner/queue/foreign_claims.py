"""Claims that others hold on waiting requests: which do not count, and whose lease has run out.

Reads newest claims only, without their chains, in few fetches, and each once; one that moves on is read again when a
lease has passed, so that renewals every few seconds cost no fetch. Takes nothing over itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import ClaimTip
from bridge.limits import EXPIRY_MAX_S
from bridge.run.lease import LeaseWatch
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock, parse_rfc3339


class ForeignClaims:
    """What one runner knows of the claims of others."""

    def __init__(self, link: BusLink, clock: Clock) -> None:
        self._link, self._clock = link, clock
        self._watch = LeaseWatch(clock)
        self._listed: Mapping[str, str] = {}
        self._read: dict[str, tuple[ClaimTip, float]] = {}
        self._bad: dict[str, str] = {}

    def look(self, claims: Mapping[str, str], budget: WorkBudget) -> None:
        """Note a listing and read what is new in it.

        Args:
            claims: tips, by run id, of claims on waiting requests that are not run here.
            budget: what may be spent on reading.

        Raises:
            RemoteError: the bus does not answer.
        """
        self._listed = claims
        self._watch.listed(claims)
        self._read = {run_id: one for run_id, one in self._read.items() if run_id in claims}
        self._bad = {run_id: oid for run_id, oid in self._bad.items() if claims.get(run_id) == oid}
        wanted = {run_id: oid for run_id, oid in claims.items() if self._is_due(run_id, oid)}
        if not wanted:
            return
        with self._link.lock:
            tips = self._link.bus.newest_claims(wanted, budget)
            self._bad |= {
                run_id: oid for run_id, oid in wanted.items() if run_id not in tips and self._link.bus.bad_claim(oid)
            }
        now_s = self._clock.steady_s()
        for run_id, tip in tips.items():
            self._read[run_id] = (tip, now_s)
            if not tip.signature.refused:
                self._watch.read(run_id, tip.oid, tip.claim.position)

    def not_counting(self) -> dict[str, str]:
        """Return the tips, by run id, of claims that are refused for their signature, or are none at all.

        What is no claim may have been put over one whose runner restores it, so it counts for a lease.
        """
        lease_s = self._link.record.lease_s
        refused = {run_id: tip.oid for run_id, (tip, _) in self._read.items() if self._is_refused(run_id, tip)}
        bad = {run_id: oid for run_id, oid in self._bad.items() if self._watch.expired(run_id, lease_s)}
        return bad | refused

    def expired(self) -> list[ClaimTip]:
        """Return the claims that have not moved on for their whole lease and have not ended."""
        return [
            tip
            for run_id, (tip, _) in sorted(self._read.items())
            if self._listed.get(run_id) == tip.oid
            and tip.claim.state != "terminal"
            and not self._is_refused(run_id, tip)
            and self._watch.expired(run_id, self._lease_s(tip))
        ]

    def is_spooled(self, tip: ClaimTip) -> bool:
        """Return whether a beacon of the last day says that the claim's runner could not deliver its result yet.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        oldest = self._clock.now() - dt.timedelta(seconds=EXPIRY_MAX_S)
        with self._link.lock:
            beacons = [beacon for _, beacon in self._link.bus.read_beacons() if beacon.runner == tip.claim.runner]
        return any(tip.claim.id in one.spooled and parse_rfc3339(one.time) > oldest for one in beacons)

    def _lease_s(self, tip: ClaimTip) -> float:
        return self._link.record.counted_lease_s(tip.claim.lease_s)

    def _is_refused(self, run_id: str, tip: ClaimTip) -> bool:
        return self._link.judges and tip.signature.refused and self._listed.get(run_id) == tip.oid

    def _is_due(self, run_id: str, oid: str) -> bool:
        """Return whether a tip is to be read: a new one, or one that moved a lease ago or was refused before."""
        if self._bad.get(run_id) == oid:
            return False
        tip, read_s = self._read.get(run_id, (None, 0.0))
        if tip is None or tip.signature.refused:
            return True
        return tip.oid != oid and self._clock.steady_s() - read_s >= self._lease_s(tip)
