"""Read what a decision about trust needs of a bus: commits as raw bytes, and cancel branches.

Every commit is hashed again and parents are read from its own bytes, so nothing that is kept beside the objects
(replace refs, grafts, a shallow list) can lend a commit another history. Knows nothing about who is trusted.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Container, Iterator
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.refs.windows import cancel_prefixes
from bridge.bus.store.gather import Gatherer, Tip, WorkBudget
from bridge.bus.store.interface import MissingObjectError, Reader, RefStore
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.store.swap import tips_of
from bridge.bus.views import ReceivedRequest, RequestRef, WorkloadCommit
from bridge.errors import BusError
from bridge.limits import MIB, TREE_MAX_BYTES
from bridge.records.bus import BusRecord
from bridge.request import cancelled_id_of
from bridge.system.gitobjects import ObjectFormatError, parse_commit, parse_tree, tree

COMMIT_MAX_BYTES: Final = MIB
TREE_ENTRIES_MAX_BYTES: Final = MIB
CHAIN_MAX_COUNT: Final = 100_000
CANCELS_MAX_COUNT: Final = 16  # read by one call; the next call reads the others


class History:
    """The commits that a decision about trust reads; each is hashed again, and only the objects themselves are used."""

    def __init__(self, store: RefStore, record: BusRecord, quarantine: Quarantine) -> None:
        self._store, self._record = store, record
        self._cancels = Gatherer(store, quarantine, "cancel", batch_max_bytes=4 * MIB, one_max_bytes=MIB)

    def workload_commit(self, ref: RequestRef, oid: str) -> WorkloadCommit:
        """Return the commit a request names as its workload.

        Raises:
            BusError: the bus does not give it, or not as a commit.
        """
        store = self._store.isolate(ref.id, [ref.oid, oid], max_bytes=TREE_MAX_BYTES)
        with store.reader() as reader:
            raw = _raw(reader, oid)
            try:
                top = parse_commit(raw).tree
                entries = parse_tree(reader.read(top, "tree", TREE_ENTRIES_MAX_BYTES))
            except ObjectFormatError as error:
                raise BusError(f"{oid[:12]} is no commit the bridge reads: {error}") from error
        others = [entry for entry in entries if entry.name != commits.FOLDER]
        return WorkloadCommit(raw, top if len(others) == len(entries) else tree(others).oid)

    def first_parents(self, ref: str) -> Iterator[str]:
        """Yield the commits of a ref and its first parents, newest first, the whole history fetched.

        Raises:
            BusError: there is no such ref, or its history is cut off.
        """
        tip = tips_of(self._store, [ref]).get(ref)
        if tip is None:
            raise MissingObjectError(f"{self._store.route} has no {ref}")
        self._store.obtain({ref: tip}, max_bytes=TREE_MAX_BYTES)
        at: str | None = tip
        with self._store.reader() as reader:
            for _ in range(CHAIN_MAX_COUNT):
                if at is None:
                    return
                yield at
                parents = _parents(_raw(reader, at))
                at = parents[0] if parents else None
        raise BusError(f"{ref} has more than {CHAIN_MAX_COUNT} commits in a row")

    def cancels(self, run_id: str, read_before: Container[str] = ()) -> tuple[ReceivedRequest, ...]:
        """Return the untrusted bytes of a bounded number of cancel branches of a run; none where one holds no cancel.

        Args:
            run_id: the run.
            read_before: commits not to be read again, so that repeated calls come to every branch.
        """
        listed = self._store.list(cancel_prefixes(self._record, run_id)).refs
        accepted = self._record.request_branches
        tips = {
            ref: oid
            for ref, oid in listed.items()
            if cancelled_id_of(ref) == run_id and names.accepts(accepted, ref) and oid not in read_before
        }
        # Pushers choose branch names: read in order of name, forged cancels could keep the signed one from being read.
        chosen = sorted(tips.items(), key=lambda _: secrets.randbits(64))[:CANCELS_MAX_COUNT]
        cancels = {Tip(ref, oid): ReceivedRequest(RequestRef(run_id, ref, oid), b"", None) for ref, oid in chosen}

        def read(reader: Reader, tip: Tip) -> None:
            folder = commits.read_folder(reader, commits.read_commit(reader, tip.oid), MIB)
            data, signature = commits.read_signed(reader, folder, commits.CANCEL_FILE)
            cancels[tip] = ReceivedRequest(cancels[tip].ref, data or b"", signature)

        self._cancels.gather(list(cancels), WorkBudget(CANCELS_MAX_COUNT), read)
        return tuple(cancels.values())


def reaches(reader: Reader, start: str, ancestor: str, most: int) -> bool:
    """Say whether a commit is among the ancestors of another, parents of merges included.

    Commits beyond the fetched history are not searched.

    Raises:
        BusError: a commit on the way is malformed, or there are more than `most`.
    """
    visited, pending = {start}, [start]
    while pending:
        try:
            parents = _parents(_raw(reader, pending.pop()))
        except MissingObjectError:
            continue
        if ancestor in parents:
            return True
        pending += [parent for parent in parents if parent not in visited]
        visited.update(parents)
        if len(visited) > most:
            raise BusError(f"{ancestor[:12]} is not among the last {most} commits of {start[:12]}")
    return False


def _raw(reader: Reader, oid: str) -> bytes:
    """Return a commit's bytes, hashed again.

    Raises:
        BusError: missing, too large, or its bytes do not hash to its id.
    """
    raw = reader.read(oid, "commit", COMMIT_MAX_BYTES)
    algorithm = "sha256" if len(oid) == 64 else "sha1"
    digest = hashlib.new(algorithm, b"commit %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()
    if digest != oid:
        raise BusError(f"commit {oid[:12]} reads as {digest[:12]}")
    return raw


def _parents(raw: bytes) -> tuple[str, ...]:
    try:
        return parse_commit(raw).parents
    except ObjectFormatError as error:
        raise BusError(f"a commit on the way is none the bridge reads: {error}") from error
