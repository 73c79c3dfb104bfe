"""Compare this machine's wall clock with moments that others sign: of beacons and requests that have just come.

Nobody's clock is right by itself: this one is wrong where two keys agree against it, and in doubt against one alone. A
moment in the past says something only where it is known when it came, so what a first listing shows says nothing.

Knows no keys: what it is given counts, under the name that signed it. Corrects nothing.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock, parse_rfc3339

AGREEING_COUNT: Final = 2
OFF_S: Final = 600.0
COUNTS_S: Final = 3600.0  # a moment that came longer ago says nothing of a clock that may have been set since
_AGAIN_S: Final = 600.0  # beacons of one runner are not compared more often while its clock and this one agree
_AHEAD_MOST_S: Final = 10 * 365 * 24 * 3600.0  # a moment may be one of the year 1; of more than this nothing is left


@dataclass(frozen=True)
class _Reading:
    """By how many seconds this clock is ahead of another's, at least and at most, and when that came: steady time."""

    ahead_s: float
    most_s: float
    at_s: float


class ClockWatch:
    """What one runner knows of its wall clock from others.

    Args:
        name: the runner's name.
        link: the bus; only runners whose keys it knows are compared with.
        clock: the machine's clocks.
        log: takes a line when the answer changes.
    """

    def __init__(self, name: str, link: BusLink, clock: Clock, log: logging.Logger) -> None:
        self._name, self._link, self._clock, self._log = name, link, clock, log
        self._readings: dict[str, _Reading] = {}
        self._numbers: dict[str, int] = {}
        self._tips: Mapping[str, str] = {}
        self._requests: frozenset[str] | None = None
        self._arrived: frozenset[str] = frozenset()
        self._listed_s = clock.steady_s()
        self._gap_s = 0.0
        self._reported = ""

    @property
    def wrong(self) -> str | None:
        """That this clock is wrong by at least two others that agree, None where they are not."""
        ahead = self._others_off()
        if len(ahead) < AGREEING_COUNT or len(ahead) <= self._agreeing_count():
            return None
        middle_s = sorted(ahead.values())[len(ahead) // 2]
        return f"{_off(middle_s)} the clocks of {', '.join(sorted(ahead))}: set the time of this machine"

    @property
    def doubt(self) -> str | None:
        """That this clock and others differ, and nothing shows whose is wrong; None where none differs."""
        if (wrong := self.wrong) is not None:
            return wrong
        ahead = self._others_off()
        if not ahead or self._agreeing_count() >= len(ahead):
            return None
        name, off_s = max(ahead.items(), key=lambda one: abs(one[1]))
        return f"{_off(off_s)} the clock of {name}: compare the time of both"

    @property
    def ahead_s(self) -> float:
        """By how many seconds this clock is at most ahead of the one furthest behind; 0 while none contradicts it."""
        if self.doubt is None:
            return 0.0
        since_s = self._clock.steady_s() - COUNTS_S
        most = [reading.most_s for reading in self._readings.values() if reading.at_s >= since_s]
        return min(_AHEAD_MOST_S, max([0.0, *most]))

    def look(self, beacons: Mapping[str, str], requests: Collection[str]) -> None:
        """Note a listing, and compare with the beacons that are new in it.

        Args:
            beacons: tips by runner name.
            requests: commits of the requests.

        Raises:
            RemoteError: the bus does not answer.
        """
        now_s = self._clock.steady_s()
        self._gap_s, self._listed_s = now_s - self._listed_s, now_s
        self._arrived = frozenset() if self._requests is None else frozenset(requests) - self._requests
        self._requests = frozenset(requests)
        signing = self._link.signing_runners()
        others = {name: tip for name, tip in beacons.items() if name != self._name and name in signing}
        if any(self._is_due(name, tip) for name, tip in others.items()):
            with self._link.lock:
                found = self._link.bus.read_beacons(listed=others)
            for _, beacon in found:
                number = self._numbers.get(beacon.runner)
                self._numbers[beacon.runner] = max(beacon.sequence, number or 0)
                came = number is not None and beacon.sequence > number
                if number is None or came:
                    self._compare(beacon.runner, beacon.time, came=came)
            self._tips = others
        self._report()

    def saw_request(self, signer: str, oid: str, created: str) -> None:
        """Compare with the moment of a request whose signature holds, where it came with the last listing.

        Args:
            signer: whose key signed it.
            oid: its commit.
            created: when its client says it made it, RFC 3339.
        """
        if oid in self._arrived:
            self._compare(signer, created, came=True)

    def _is_due(self, name: str, tip: str) -> bool:
        reading = self._readings.get(name)
        rests = reading is not None and abs(reading.ahead_s) <= OFF_S
        rests = rests and reading is not None and self._clock.steady_s() - reading.at_s < _AGAIN_S
        return self._tips.get(name) != tip and not rests

    def _compare(self, key: str, moment: str, *, came: bool) -> None:
        """Note by how much this clock is ahead of a moment; one in the past only where it `came` just now."""
        ahead_s = most_s = (self._clock.now() - parse_rfc3339(moment)).total_seconds()
        if ahead_s > 0:
            if not came:
                return
            ahead_s = max(0.0, ahead_s - self._gap_s)
        self._readings[key] = _Reading(ahead_s, most_s, self._clock.steady_s())

    def _recent(self) -> dict[str, float]:
        since_s = self._clock.steady_s() - COUNTS_S
        return {key: reading.ahead_s for key, reading in self._readings.items() if reading.at_s >= since_s}

    def _others_off(self) -> dict[str, float]:
        """Return those of which this clock is too far, and which agree with most others of that side."""
        off = {key: ahead_s for key, ahead_s in self._recent().items() if abs(ahead_s) > OFF_S}
        groups = ({key: one for key, one in off.items() if abs(one - middle) <= OFF_S} for middle in off.values())
        return max(groups, key=len, default={})

    def _agreeing_count(self) -> int:
        return sum(abs(ahead_s) <= OFF_S for ahead_s in self._recent().values())

    def _report(self) -> None:
        wrong, doubt = self.wrong, self.doubt
        text = f"nothing is taken: {wrong}" if wrong else f"nothing ends as expired: {doubt}" if doubt else ""
        if text != self._reported:
            self._log.warning("%s", text or "the clocks of others and this one agree again")
            self._reported = text


def _off(ahead_s: float) -> str:
    minutes = round(abs(ahead_s) / 60)
    return f"this clock is {dt.timedelta(minutes=minutes)} {'ahead of' if ahead_s > 0 else 'behind'}"
