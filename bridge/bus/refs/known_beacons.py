"""Bring the beacons that were good when they were last read along with the listing that opens a bus.

One that fails costs that call what it brought, no more than a bound, and is not brought again before it was good again.
Knows nothing about who reads them for what.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.interface import Listing, RefStore
from bridge.errors import BusError
from bridge.limits import MIB
from bridge.records.bus import Beacon
from bridge.system.durable import write_atomically
from bridge.system.gitobjects import Commit

_KNOWN_MAX_COUNT: Final = 64
_ALL_MAX_BYTES: Final = 4 * MIB  # what a fetch of several beacons may receive


class KnownBeacons:
    """The refs of good beacons, and what stood there when the bus was opened.

    Args:
        store: the remote.
        path: a file of refs, a line each, that outlives the process; None remembers none.
    """

    def __init__(self, store: RefStore, path: Path | None) -> None:
        self._store, self._path = store, path
        self._brought: dict[tuple[str, str], tuple[Beacon, Commit]] = {}

    def list(self, prefixes: Sequence[str]) -> Listing:
        """Return what a listing of these prefixes shows, having brought the known beacons in the same call.

        Raises:
            RemoteError: the remote did not answer.
        """
        refs = self._refs()
        if not refs:
            return self._store.list(prefixes)
        name = f"opening-{secrets.token_hex(4)}"  # several commands may open a bus at once
        # What strangers may have pushed: nothing of ours is there, and of its history nothing is fetched.
        store = self._store.isolate(name, (), max_bytes=_ALL_MAX_BYTES, checked=False, borrows=False)
        try:
            listing = store.list(prefixes, bring=refs, max_bytes=_ALL_MAX_BYTES, newest_only=True)
            with store.reader() as reader:
                for ref, oid in ((ref, listing.refs[ref]) for ref in refs if ref in listing.refs):
                    try:
                        self._brought[ref, oid] = commits.read_record(reader, oid, commits.BEACON_FILE, Beacon)
                    except BusError:
                        continue  # it did not come, or is no good: who wants it fetches it, and finds out
        finally:
            self._store.drop(name)
        return listing

    def at(self, ref: str, oid: str) -> tuple[Beacon, Commit] | None:
        """Return the beacon that was brought from a ref, with its commit; None where it was another one or none."""
        return self._brought.get((ref, oid))

    def keep(self, refs: Iterable[str]) -> None:
        """Remember which beacons were good just now: these are brought the next time, unless they are very many."""
        good = sorted(refs)
        good = good if len(good) <= _KNOWN_MAX_COUNT else []
        if self._path is not None and tuple(good) != self._refs():
            write_atomically(self._path, "".join(f"{ref}\n" for ref in good).encode(), durable=False)

    def _refs(self) -> tuple[str, ...]:
        if self._path is None or not self._path.exists():
            return ()
        lines = self._path.read_text("utf-8", "replace").splitlines()[:_KNOWN_MAX_COUNT]
        return tuple(line for line in lines if any(names.runner_name_of(prefix, line) for prefix in names.PREFIXES))
