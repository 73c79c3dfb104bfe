"""Which refs a listing asks for: all of a bus, or those of the last days and of runs that are known.

A run id begins with its time, so the ids of a few hours share their first characters, and a request branch is named
after preset and id: a ref-prefix for each preset and each of those beginnings lists what is recent, however full the
bus is. Requests for presets that are not known here, and older ones, show in a whole listing only, but for those
whose branch is named. What holds few branches is listed whole: most spaces of agents are empty on most buses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from bridge.bus.refs import names
from bridge.request import run_id_of

if TYPE_CHECKING:
    from bridge.bus.views import ListingWindow
    from bridge.records.bus import BusRecord

_ENDS: Final = ("mac-bridge/", "mac-bridge-")
FEW_MAX_COUNT: Final = 64  # branches cost about 100 bytes each, the prefixes that spare them 70 each in every listing


def all_prefixes(record: BusRecord) -> tuple[str, ...]:
    """Return the prefixes of everything a listing shows; logs are read by id only."""
    return (*_runner_refs(record), names.claim_ref(record.prefix, ""), *names.listing_prefixes(record.request_branches))


def window_prefixes(record: BusRecord, window: ListingWindow, sparse: Collection[str] = ()) -> tuple[str, ...]:
    """Return the prefixes of what a window shows; of `sparse` beginnings of branch names it shows everything."""
    ids = (*window.beginnings(), *window.runs)
    claims = (names.claim_ref(record.prefix, beginning) for beginning in ids)
    named = (prefix for ref in window.refs for prefix in _of_request(record, ref))
    return (*_runner_refs(record), *claims, *_branches(record, window.presets, ids, sparse), *named)


def watched_prefixes(record: BusRecord) -> tuple[str, ...]:
    """Return the prefixes of what somebody waits for: requests, claims and logs."""
    runs = (names.claim_ref(record.prefix, ""), names.log_ref(record.prefix, ""))
    return (*runs, *names.listing_prefixes(record.request_branches))


def sparse_heads(record: BusRecord, refs: Iterable[str], before: Collection[str] | None) -> frozenset[str]:
    """Return how the request branches begin of which there are few.

    Args:
        record: the bus's own.
        refs: what was listed.
        before: the beginnings that were listed whole; None: all of them.
    """
    heads = names.listing_prefixes(record.request_branches) if before is None else tuple(before)
    counts = dict.fromkeys(heads, 0)
    for ref in refs:
        head = next((head for head in heads if ref.startswith(head)), None)
        if head is not None:
            counts[head] += 1
    return frozenset(head for head, count in counts.items() if count <= FEW_MAX_COUNT)


def cancel_prefixes(record: BusRecord, run_id: str) -> tuple[str, ...]:
    """Return the prefixes of one run's cancel branches."""
    return _branches(record, (), (run_id,))


def _of_request(record: BusRecord, ref: str) -> tuple[str, ...]:
    return (ref, names.cancel_prefix(ref), names.claim_ref(record.prefix, run_id_of(ref) or ""))


def _runner_refs(record: BusRecord) -> tuple[str, ...]:
    return (names.bus_ref(record.prefix), names.root_ref(record.prefix), names.beacon_ref(record.prefix, ""))


def _branches(
    record: BusRecord, presets: Iterable[str], ids: Iterable[str], sparse: Collection[str] = ()
) -> tuple[str, ...]:
    """Return prefixes of request and cancel branches; a pattern in which presets have no place is listed whole."""
    names_of_presets, beginnings = tuple(presets), tuple(ids)
    prefixes: list[str] = []
    for head in names.listing_prefixes(record.request_branches):
        if head in sparse or not head.endswith(_ENDS):
            prefixes.append(head)
            continue
        prefixes += [f"{head}cancel{head[-1]}{beginning}" for beginning in beginnings]
        prefixes += [f"{head}{preset}-{beginning}" for preset in names_of_presets for beginning in beginnings]
    return tuple(prefixes)
