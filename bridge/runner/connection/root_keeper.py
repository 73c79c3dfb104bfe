"""Put the bus record back where it was deleted, and the root where the bus shows a lower one, a stranger's, or none.

By compare-and-swap, not twice within a minute and each time after twice as long: two runners, or a runner and a hostile
pusher, never push against each other without pause. What happens three times is said.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from bridge.errors import InfrastructureError
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.link import BusLink
from bridge.runner.connection.rests import Rests
from bridge.system.clock import Clock

PAUSE_S: Final = 60.0
PAUSE_MAX_S: Final = 24 * 3600.0
SAID_AFTER: Final = 3


class RootKeeper:
    """Keeps the record and the root of one bus in their places.

    Args:
        link: the bus.
        keys: what this runner knows.
        clock: the machine's clocks.
        mark: a file that is there while the root is contested, for `doctor` and the beacon.
        log: takes what was done.
    """

    def __init__(self, link: BusLink, keys: KnownKeys, clock: Clock, mark: Path, log: logging.Logger) -> None:
        self._link, self._keys, self._clock, self._mark, self._log = link, keys, clock, mark, log
        mark.unlink(missing_ok=True)
        self._rests = Rests(clock, PAUSE_S, PAUSE_MAX_S)
        self._times = 0

    def ended(self) -> str | None:
        """Return that the owner has ended this runner's key, None while it counts."""
        return self._keys.ended()

    def tend(self) -> None:
        """Put back what the last listing showed none or another of, if it is time."""
        self._tend_record()
        self._tend_root()

    def _tend_record(self) -> None:
        """Put the record back where there is none; another one, which anybody may push, is left to the root."""
        if self._link.bus.has_record or "record" in self._rests.resting():
            return
        self._rests.failed("record")
        try:
            with self._link.lock:
                landed = self._link.bus.put_record_back()
        except InfrastructureError as error:
            self._log.warning("the bus record cannot be put back: %s", error.message)
            return
        if landed:
            self._log.warning("the bus record was deleted: put back, bus %s", self._link.record.bus_id)

    def _tend_root(self) -> None:
        known, resting = self._keys.known, self._rests.resting()
        if known is None or known.note is None:
            return
        if self._link.bus.is_root_withheld:  # it may be its owner's next one, with a revocation
            if "withheld" not in resting:
                self._rests.failed("withheld")
                self._log.warning(
                    "the remote lists the bus's root and does not give it; where its object is lost there: "
                    "kakeya-runner bus repair"
                )
            return
        if "root" in resting:
            return
        self._rests.failed("root")
        try:
            with self._link.lock:
                landed = self._link.bus.write_root(known.root.files, self._link.bus.root_tip)
        except InfrastructureError as error:
            self._log.warning("the bus's root cannot be put back: %s", error.message)
            return
        if not landed:
            return  # another writer was there first; the next listing shows what it wrote
        self._times += 1
        self._log.info("put the bus's root back: %s", known.note)
        if self._times == SAID_AFTER:
            self._mark.touch(mode=0o600)
            self._log.warning("somebody keeps replacing the root of this bus (%s); protect %sroot on the remote",
                              known.note, self._link.record.prefix)  # fmt: skip
