"""Claims on the bus that do not count, so that a request they would starve is taken all the same.

Reads a claim when it is new, and again when it has moved and a lease has passed: a renewal each few seconds by a
runner that was found genuine costs no fetch. Claims of requests that have expired are not read, and the rest a few at
a time, newest first, so that a bus full of old runs delays no new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bridge.bus.interface import SharedBus
from bridge.errors import BusError
from bridge.ids import new_id
from bridge.limits import CLOCK_SKEW_MAX_S, EXPIRY_MAX_S
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock

LOOKS_MAX_COUNT: Final = 32


class ForgedClaims:
    """Finds claims without the signature they need; reads nothing where this runner checks no signatures."""

    def __init__(self, link: BusLink, clock: Clock) -> None:
        self._link, self._clock = link, clock
        self._genuine: dict[str, tuple[str, float]] = {}
        self._refused: dict[str, str] = {}

    def among(self, claims: Mapping[str, str]) -> dict[str, str]:
        """Return the tips, by run id, of those claims that are refused for their signature.

        Raises:
            RemoteError: the bus does not answer.
        """
        if not self._link.judges:
            return {}
        recent = sorted((run_id for run_id in claims if run_id >= self._oldest()), reverse=True)
        now_s, lease_s = self._clock.steady_s(), self._link.record.lease_s
        self._genuine = {run_id: seen for run_id, seen in self._genuine.items() if run_id in claims}
        found: dict[str, str] = {}
        looked = 0
        for run_id in recent:
            oid, seen = claims[run_id], self._genuine.get(run_id)
            if seen is not None and (seen[0] == oid or now_s - seen[1] < lease_s):
                continue
            looked += self._refused.get(run_id) != oid  # one that was read before is only judged again
            if looked > LOOKS_MAX_COUNT:
                break
            with self._link.lock:
                refused = _is_refused(self._link.bus, run_id, oid)
            if refused:
                found[run_id] = oid
            else:
                self._genuine[run_id] = (oid, now_s)
        self._refused = found
        return dict(found)

    def _oldest(self) -> str:
        """Return the least id of a request that may still be valid."""
        now_s = self._clock.now().timestamp()
        return new_id(max(0, int((now_s - EXPIRY_MAX_S - CLOCK_SKEW_MAX_S) * 1000)), bytes(10))


def _is_refused(bus: SharedBus, run_id: str, oid: str) -> bool:
    """Return whether a claim is refused; one that cannot be read may be a newer version's, and stays as it is."""
    try:
        view = bus.read_claim(run_id, oid)
    except BusError:
        return False
    return view is not None and view.signature.refused
