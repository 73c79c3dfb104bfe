"""The protocol of the bus over any store of refs, for both sides: `RequesterBus` and `RunnerBus` of the interface.

Knows nothing about git, policy or evidence.
"""

from __future__ import annotations

from bridge.bus.sides.requester import RequesterRefBus
from bridge.bus.sides.runner import RunnerRefBus


class RefBus(RequesterRefBus, RunnerRefBus):
    """A bus over a store, for both sides."""

    def beside(self) -> RefBus:
        """Return this bus for work that goes on beside; see the interface."""
        record = self.identity()
        other = RefBus(
            self._store.beside(),
            clock=self._clock,
            pacer=self._pacer,
            expect_id=record.bus_id,
            prefix=record.prefix,
            quarantine=self._quarantine,
        )
        other.use_seals(self._seals.seals)
        other._identity, other._lock = self._identity, self._lock
        # Over its own store: a sign of life that goes along with a run's claim is not given up before the claim is.
        other._beacons = self._beacons.over(other._store)
        return other
