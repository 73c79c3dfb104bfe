"""A remote that a bus moves from or to: its refs, its root, and what lies at another remote carried here.

Branches, tags, notes and the bus's own refs are carried; what a host keeps for itself, such as ``refs/pull/``, takes no
push. Two remotes of one move share the folder of their objects. Knows nothing about when a bus may move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from bridge.bus.content import commits
from bridge.bus.identity.root_ref import RootRef
from bridge.bus.probe import are_same, try_prefix
from bridge.bus.refs import names
from bridge.bus.store.interface import MissingObjectError, RefStore, RefUpdate
from bridge.bus.store.swap import swap, tips_of
from bridge.errors import BusError, ObjectError, RemoteError
from bridge.limits import MIB
from bridge.records.bus import BusRecord
from bridge.system.clock import Clock, rfc3339

if TYPE_CHECKING:
    from bridge.bus.views import PrefixTrial

BATCH_COUNT: Final = 100
_BATCH_MAX_BYTES: Final = 64 * 1024 * MIB  # the owner's own repository, fetched once
_CARRIED: Final = ("refs/heads/", "refs/tags/", "refs/notes/")
_ROUNDS: Final = 3  # a remote that was in somebody's way answers another time


@dataclass(frozen=True)
class LeftRef:
    """A ref that another remote did not take, and why, in its own words."""

    ref: str
    why: str


class Place:
    """One remote of a move.

    Args:
        store: the remote.
        prefix: of the refs that runners of the bus write.
        clock: dates what is written.
    """

    def __init__(self, store: RefStore, prefix: str, clock: Clock) -> None:
        self._store, self._prefix, self._clock = store, prefix, clock
        self._root = RootRef(store)

    @property
    def route(self) -> str:
        """Where it is, with no secret of its URL."""
        return self._store.route

    def refs(self) -> dict[str, str]:
        """Return the refs that a move carries, but for record and root, which their owner writes.

        Raises:
            RemoteError: the remote did not answer.
        """
        listed = self._store.list([*_CARRIED, self._prefix]).refs
        own = {name(self._prefix) for name in (names.bus_ref, names.root_ref, names.probe_ref)}
        return {ref: oid for ref, oid in listed.items() if ref not in own}

    def owned(self) -> dict[str, str]:
        """Return the refs of records and roots of buses, at any prefix.

        Raises:
            RemoteError: the remote did not answer.
        """
        return tips_of(self._store, [name(p) for name in (names.bus_ref, names.root_ref) for p in names.PREFIXES])

    def root_files(self) -> Mapping[str, bytes] | None:
        """Return the untrusted files at the root's ref, None where there is none.

        Raises:
            RemoteError: the remote did not answer.
        """
        tip = self.owned().get(names.root_ref(self._prefix))
        return None if tip is None else self._root.files(tip)

    def write(self, record: BusRecord, files: Mapping[str, bytes]) -> None:
        """Replace record and root.

        Raises:
            BusError: another writer was there first.
            RemoteError: the remote refuses it, or did not answer.
        """
        moment, over = rfc3339(self._clock.now()), self.owned()
        if self._root.write(self._prefix, files, moment, over.get(names.root_ref(self._prefix))) is None:
            raise BusError(f"another writer changed the root of {self.route}", remedy="the same command again goes on")
        ref = names.bus_ref(self._prefix)
        tip = over.get(ref)
        parents = commits.parents_at(self._store, ref, tip, MIB)
        head, objects = commits.bus_commit(record, moment, parents, self._store.committer)
        self._store.write(objects)
        if not swap(self._store, [RefUpdate(ref, head.oid, tip)], authority=ref)[ref].landed:
            raise BusError(
                f"another writer changed the record of {self.route}", remedy="the same command again goes on"
            )

    def is_same_as(self, other: Place) -> bool:
        """Return whether a ref that is made here shows at another route: then both lead to one repository.

        Raises:
            RemoteError: the remote refuses the ref, or one of them did not answer.
        """
        return are_same(self._store, other._store, self._prefix, int(self._clock.now().timestamp()))

    def try_prefix(self) -> PrefixTrial:
        """Create, move and delete a ref at the bus's prefix.

        Raises:
            RemoteError: the remote refuses to create it.
            BusError: it takes the ref and does not show it.
        """
        return try_prefix(self._store, self._prefix, int(self._clock.now().timestamp()))

    def fetch(self, refs: Mapping[str, str]) -> None:
        """Bring refs here, whole.

        Raises:
            BusError: the remote does not give one of them.
            RemoteError: it did not answer.
        """
        for batch in _batches(refs):
            try:
                self._store.obtain(batch, max_bytes=_BATCH_MAX_BYTES)
            except (MissingObjectError, ObjectError) as error:
                raise BusError(
                    f"{self.route} does not give all that it lists: {error.message}",
                    remedy="a ref that moved meanwhile: the same command again; a damaged one: kakeya-runner bus "
                    "repair --yes first",
                ) from error

    def take(self, refs: Mapping[str, str]) -> tuple[LeftRef, ...]:
        """Point refs here to commits that were fetched, whatever they point to now; return those that were refused.

        Raises:
            RemoteError: the remote did not answer.
        """
        left: dict[str, str] = {}
        for _ in range(_ROUNDS):
            there = self.refs()
            missing = {ref: oid for ref, oid in refs.items() if there.get(ref) != oid}
            left = {ref: left.get(ref, "it moved again and again") for ref in missing}
            for batch in _batches(missing):
                updates = [RefUpdate(ref, oid, there.get(ref)) for ref, oid in batch.items()]
                answers = self._store.push(updates)
                left |= {ref: answer.why for ref, answer in answers.items() if answer.why}
                left = {ref: why for ref, why in left.items() if not answers.get(ref)}
            if not left:
                return ()
        there = self.refs()
        return tuple(LeftRef(ref, why) for ref, why in left.items() if there.get(ref) != refs[ref])


def carry(old: Place, new: Place) -> int:
    """Bring every ref of one place to another; return how many that place has then.

    Raises:
        BusError: the old one does not give what it lists.
        RemoteError: the new one does not take a ref, or one of them did not answer.
    """
    refs = old.refs()
    there = new.refs()
    missing = {ref: oid for ref, oid in refs.items() if there.get(ref) != oid}
    old.fetch(missing)
    left = new.take(missing)
    if left:
        more = f", nor {len(left) - 1} more" if len(left) > 1 else ""
        raise RemoteError(
            f"{new.route} did not take {left[0].ref}{more}: {left[0].why}",
            remedy="mend that there, and the same command again goes on; to stay: kakeya-runner bus move --stay",
        )
    return len(refs)


def _batches(refs: Mapping[str, str]) -> Iterator[dict[str, str]]:
    left = iter(sorted(refs.items()))
    while batch := dict(islice(left, BATCH_COUNT)):
        yield batch
