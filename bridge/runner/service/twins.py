"""Notice another live runner of this runner's name: a copied state folder, or two machines from one image.

Each start draws a nonce, which its beacons carry. A beacon of this name that this state did not write is watched before
anything is taken: only a number that goes up, under a signature that counts, shows that somebody lives.
Whoever starts then does not go on; of two that meet later, the one that started later takes no more.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.errors import TwinError
from bridge.records.bus import Beacon, RunnerStart
from bridge.run.lease import beacon_counts_s, beacon_interval_s
from bridge.runner.connection.link import BusLink
from bridge.runner.state.database import Fact, StateDatabase
from bridge.system.clock import Clock, parse_rfc3339, rfc3339

_STARTS_KEPT: Final = 16
_INTERVALS: Final = 2
_MACHINE: Final = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@dataclass
class _Watched:
    """A beacon of this name from another start: its number when it was first seen, and until when it is waited for."""

    start: RunnerStart
    sequence: int
    until_s: float


class Twins:
    """What one start of a runner knows of others of its name.

    Args:
        name: the runner's name.
        database: remembers the starts that were this state's.
        link: the bus.
        clock: dates this start, and times the watch.
        log: takes the warning where nothing is signed.
        remembers: whether its state outlives it; one that does not knows no earlier start of its own, and watches none.
    """

    def __init__(
        self,
        name: str,
        database: StateDatabase,
        link: BusLink,
        *,
        clock: Clock,
        log: logging.Logger,
        remembers: bool = True,
    ) -> None:
        self._name, self._link, self._clock, self._log = name, link, clock, log
        self.start = RunnerStart(
            time=rfc3339(clock.now()), nonce=secrets.token_hex(16), machine=machine_digest(link.record.bus_id)
        )
        self._earlier: list[str] = json.loads(database.fact(Fact.STARTS) or "[]")
        self._sent = int(database.fact(Fact.BEACON) or 0)
        database.note(Fact.STARTS, json.dumps([*self._earlier, self.start.nonce][-_STARTS_KEPT:]))
        self._watched: _Watched | None = None
        self._began, self._remembers = False, remembers
        self._yields_to: str | None = None
        self._tip: str | None = None

    @property
    def wait(self) -> str | None:
        """Why nothing is taken now because of another runner of this name, None where there is none."""
        if self._yields_to is not None:
            return self._yields_to
        if self._began or self._watched is None:
            return None
        return f"a beacon of another start of {self._name} is watched: nothing is taken until it is known to be gone"

    @property
    def is_watching(self) -> bool:
        """Whether this start waits to find out whether another runner of its name lives."""
        return not self._began and self._watched is not None

    def look(self, beacons: Mapping[str, str]) -> None:
        """Look at this runner's beacon in a listing.

        Args:
            beacons: tips by runner name.

        Raises:
            TwinError: another runner of this name lives, and this one has just started.
            RemoteError: the bus does not answer.
        """
        tip = beacons.get(self._name) if self._remembers else None
        if tip is not None and tip != self._tip:
            with self._link.lock:
                beacons_of_name = [beacon for _, beacon in self._link.bus.read_beacons(listed={self._name: tip})]
            self._tip = tip
            if beacons_of_name:
                self._meet(beacons_of_name[0])
        if self._watched is None or self._clock.steady_s() >= self._watched.until_s:
            self._began, self._watched = True, self._watched if self._began else None

    def _meet(self, beacon: Beacon) -> None:
        """Go by a beacon of this name that was not seen before."""
        start = beacon.start
        if start is None or start.nonce == self.start.nonce or beacon.state == "stopped":
            return
        if start.nonce in self._earlier and beacon.sequence <= self._sent:  # a copy does not know of later ones
            return
        record, now = self._link.record, self._clock.now()
        age_s = (now - parse_rfc3339(beacon.time)).total_seconds()
        if age_s > beacon_counts_s(beacon, record):
            return  # nobody has said anything under it for long
        if self._watched is None or self._watched.start.nonce != start.nonce:
            until_s = self._clock.steady_s() + _INTERVALS * beacon_interval_s(beacon, record)
            self._watched = _Watched(start, beacon.sequence, until_s)
            return
        if beacon.sequence > self._watched.sequence:
            self._watched.sequence = beacon.sequence
            self._found(beacon, start, age_s)

    def _found(self, beacon: Beacon, start: RunnerStart, age_s: float) -> None:
        here = "on this machine" if start.machine == self.start.machine else f"on {beacon.host}"
        what = f"another runner named {self._name} lives {here}: started {start.time}, its beacon is {age_s:.0f} s old"
        remedy = "stop it, or give one of them another name in policy.toml and a key of its own: kakeya-runner keygen"
        if not self._link.signs:
            self._log.warning("%s; on a bus that signs this one would not start: %s", what, remedy)
        elif not self._began:
            raise TwinError(what, remedy=remedy)
        elif (self.start.time, self.start.nonce) > (start.time, start.nonce):
            self._yields_to = f"{what}; this one started later and takes no more: {remedy}"


def machine_digest(bus_id: str) -> str:
    """Return a digest that tells two machines, or two boots of one, apart on one bus, and says nothing else of them."""
    parts = [bus_id]
    for path in _MACHINE:
        try:
            parts.append(path.read_text("ascii").strip())
        except OSError:
            parts.append(str(uuid.getnode()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
