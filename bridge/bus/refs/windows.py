"""Which refs a listing asks for: all of a bus, or those of the last days and of runs that are known.

A run id begins with its time, so the ids of a few hours share their first characters, and a request branch is named
after preset and id: a ref-prefix for each preset and each of those beginnings lists what is recent, however full the
bus is. Requests for presets that are not known here, and older ones, show in a whole listing only, but for those
whose branch is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from bridge.bus.refs import names
from bridge.request import run_id_of

if TYPE_CHECKING:
    from bridge.bus.views import ListingWindow
    from bridge.records.bus import BusRecord

_ENDS: Final = ("mac-bridge/", "mac-bridge-")


def all_prefixes(record: BusRecord) -> tuple[str, ...]:
    """Return the prefixes of everything a listing shows; logs are read by id only."""
    return (*_runner_refs(record), names.claim_ref(record.prefix, ""), *names.listing_prefixes(record.request_branches))


def window_prefixes(record: BusRecord, window: ListingWindow) -> tuple[str, ...]:
    """Return the prefixes of what a window shows."""
    ids = (*window.beginnings(), *window.runs)
    claims = (names.claim_ref(record.prefix, one) for one in ids)
    named = (one for ref in window.refs for one in _of_request(record, ref))
    return (*_runner_refs(record), *claims, *_branches(record, window.presets, ids), *named)


def watched_prefixes(record: BusRecord) -> tuple[str, ...]:
    """Return the prefixes of what somebody waits for: requests, claims and logs."""
    runs = (names.claim_ref(record.prefix, ""), names.log_ref(record.prefix, ""))
    return (*runs, *names.listing_prefixes(record.request_branches))


def cancel_prefixes(record: BusRecord, run_id: str) -> tuple[str, ...]:
    """Return the prefixes of one run's cancel branches."""
    return _branches(record, (), (run_id,))


def _of_request(record: BusRecord, ref: str) -> tuple[str, ...]:
    return (ref, names.cancel_prefix(ref), names.claim_ref(record.prefix, run_id_of(ref) or ""))


def _runner_refs(record: BusRecord) -> tuple[str, ...]:
    return (names.bus_ref(record.prefix), names.root_ref(record.prefix), names.beacon_ref(record.prefix, ""))


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
