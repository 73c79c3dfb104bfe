"""Make a snapshot out of a listing: which refs are requests, claims, logs, beacons and cancels.

Fetches nothing; what is known locally of ended runs leaves their requests out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from bridge.bus.refs import names
from bridge.bus.views import RequestRef, Snapshot
from bridge.request import cancelled_id_of, run_id_of

if TYPE_CHECKING:
    from bridge.bus.refs.claims import Claims
    from bridge.bus.store.interface import Listing
    from bridge.records.bus import BusRecord


def build_snapshot(record: BusRecord, listing: Listing, claims: Claims, done: Collection[str]) -> Snapshot:
    """Return the snapshot of a listing.

    Args:
        record: the bus's own record: prefix and accepted branches.
        listing: all its refs.
        claims: to recognise the terminal ones that are here.
        done: request commits that are known to carry a result.
    """
    refs = listing.refs
    tips = _by_id(record.prefix, "claim", refs)
    pushed = requests_in(record, refs)
    ended = claims.is_terminal({request.id: tips[request.id] for request in pushed if request.id in tips})
    pending = [request for request in pushed if request.id not in ended and request.oid not in done]
    return Snapshot(
        requests=tuple(sorted(pending, key=lambda request: (request.id, request.ref))),
        claims=tips,
        cancels=cancels_in(record, refs),
        beacons={
            name: oid for ref, oid in refs.items() if (name := names.runner_name_of(record.prefix, ref)) is not None
        },
        bytes_received=listing.bytes_received,
        unasked=listing.unasked,
    )


def requests_in(record: BusRecord, refs: Mapping[str, str]) -> list[RequestRef]:
    """Return the request branches among refs."""
    return [
        RequestRef(run_id, ref, oid)
        for ref, oid in refs.items()
        if (run_id := run_id_of(ref)) is not None and names.accepts(record.request_branches, ref)
    ]


def cancels_in(record: BusRecord, refs: Iterable[str]) -> frozenset[str]:
    """Return the runs that these refs ask to cancel."""
    return frozenset(
        run_id
        for ref in refs
        if (run_id := cancelled_id_of(ref)) is not None and names.accepts(record.request_branches, ref)
    )


def _by_id(prefix: str, kind: str, refs: Mapping[str, str]) -> dict[str, str]:
    return {run_id: oid for ref, oid in refs.items() if (run_id := names.runner_id_of(prefix, kind, ref)) is not None}
