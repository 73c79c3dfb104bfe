"""Which refs a listing asks for: all of a bus, or those of the last days and of runs that are known.

A run id begins with its time, so the ids of a few hours share their first characters, and a request branch is named
after preset and id: a ref-prefix for each preset and each of those beginnings lists what is recent, however full the
bus is. Requests for presets that are not known here, and older ones, show in a whole listing only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from bridge.bus.refs import names
from bridge.ids import new_id
from bridge.limits import CLOCK_SKEW_MAX_S
from bridge.records import BusRecord

CHARS: Final = 5  # of an id: its ids span 2**25 ms, a little more than nine hours
_SPAN_MS: Final = 1 << (5 * (10 - CHARS))
RECENT_S: Final = 2 * 24 * 3600.0
_ENDS: Final = ("mac-bridge/", "mac-bridge-")


@dataclass(frozen=True)
class ListingWindow:
    """What a listing is restricted to.

    Attributes:
        now_ms: the present, milliseconds since the epoch.
        presets: names of presets whose requests are looked for.
        runs: ids of runs that are listed whatever their age.
    """

    now_ms: int
    presets: Collection[str]
    runs: Collection[str] = ()

    def beginnings(self) -> tuple[str, ...]:
        """Return how the ids of the last two days begin, a clock that is a little ahead included."""
        first = max(0, self.now_ms - int(RECENT_S * 1000)) // _SPAN_MS
        last = (self.now_ms + int(CLOCK_SKEW_MAX_S * 1000)) // _SPAN_MS
        return tuple(new_id(number * _SPAN_MS, bytes(10))[:CHARS] for number in range(first, last + 1))


def all_prefixes(record: BusRecord) -> tuple[str, ...]:
    """Return the prefixes of everything a listing shows; logs are read by id only."""
    return (*_runner_refs(record), names.claim_ref(record.prefix, ""), *names.listing_prefixes(record.request_branches))


def window_prefixes(record: BusRecord, window: ListingWindow) -> tuple[str, ...]:
    """Return the prefixes of what a window shows."""
    ids = (*window.beginnings(), *window.runs)
    claims = (names.claim_ref(record.prefix, one) for one in ids)
    return (*_runner_refs(record), *claims, *_branches(record, window.presets, ids))


def cancel_prefixes(record: BusRecord, run_id: str) -> tuple[str, ...]:
    """Return the prefixes of one run's cancel branches."""
    return _branches(record, (), (run_id,))


def _runner_refs(record: BusRecord) -> tuple[str, ...]:
    return (names.bus_ref(record.prefix), names.beacon_ref(record.prefix, ""))


def _branches(record: BusRecord, presets: Iterable[str], ids: Iterable[str]) -> tuple[str, ...]:
    """Return prefixes of request and cancel branches; a pattern in which presets have no place is listed whole."""
    known, beginnings = tuple(presets), tuple(ids)
    found: list[str] = []
    for head in names.listing_prefixes(record.request_branches):
        if not head.endswith(_ENDS):
            found.append(head)
            continue
        found += [f"{head}cancel{head[-1]}{one}" for one in beginnings]
        found += [f"{head}{preset}-{one}" for preset in known for one in beginnings]
    return tuple(found)
