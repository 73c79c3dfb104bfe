"""Which bus this is: its record found, read and compared with the pinned id before anything is written.

A remote that carries another bus is most likely a fork. Where the reader knows the bus's root, the record in it counts,
and what lies at the record's own ref, which anybody may push, does not. Knows nothing about routes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bridge.bus.content import commits
from bridge.bus.identity.root_ref import RootRef, withheld
from bridge.bus.refs import names
from bridge.bus.store.interface import Listing, MalformedObjectError, MissingObjectError, RefStore, RefUpdate
from bridge.bus.store.swap import swap, tips_of
from bridge.errors import (
    WRONG_BUS_REMEDY,
    BusError,
    BusMissingError,
    BusMovedError,
    IntegrityError,
    ObjectError,
    UsageError,
    WrongBusError,
)
from bridge.limits import MIB
from bridge.records.bus import BusRecord
from bridge.version import VERSION

if TYPE_CHECKING:
    from bridge.bus.views import Placement

PROTOCOL: Final = 2
MOVED: Final = 3  # the schema of a record that only says where the bus is now
_PUT_BACK: Final = (
    "somebody pushed over the bus record: put its commit back with git push --force ROUTE COMMIT:REF; the runner's "
    "copy is among git --git-dir STATE/bus/control.git for-each-ref refs/fetched"
)
# Takes the files at the root's ref, None where there is none, and the bus's id; returns the record that counts.
JudgeRoot = Callable[[Mapping[str, bytes] | None, str], BusRecord | None]


class BusIdentity:
    """The record of one bus.

    Args:
        store: the remote.
        expect_id: the pinned id, or None: the first one that is read is.
        prefix: where to look, or None for both usual places.
        go_on: what whoever reads it does where the owner moved the bus, with ``{place}`` and ``{pinned}``.

    Attributes:
        reads_moved: whether the record of a bus that moved is one like any other, as it is for who moves it.
    """

    def __init__(self, store: RefStore, expect_id: str | None, prefix: str | None, go_on: str = "{place}") -> None:
        self._store, self._go_on = store, go_on
        self._moved: BusMovedError | None = None
        self.reads_moved = False
        self._expect_id = expect_id
        self._prefixes = names.PREFIXES if prefix is None else (prefix,)
        self._record: BusRecord | None = None
        self._tip: str | None = None
        self._root = RootRef(store)
        self._root_tip: str | None = None
        self._judge_root: JudgeRoot | None = None
        self._beacons: Mapping[str, str] = {}
        self._list_first: Callable[[Sequence[str]], Listing] | None = None
        self._beside: frozenset[str] = frozenset()
        self._listed_beside: Mapping[str, str] | None = None

    @property
    def root_tip(self) -> str | None:
        """The tip of the root's ref when the record was read."""
        return self._root_tip

    @property
    def is_root_withheld(self) -> bool:
        """Whether the remote lists a root and did not give it when it was last asked for it."""
        return self._root_tip is not None and self._root.is_withheld(self._root_tip)

    @property
    def has_record(self) -> bool:
        """Whether the last listing showed a record."""
        return self._tip is not None

    @property
    def beacons(self) -> Mapping[str, str]:
        """The tips of the runners' beacons, by ref, as the listing that found the record showed them."""
        return self._beacons

    def list_first(self, listed: Callable[[Sequence[str]], Listing]) -> None:
        """Let this function make the first listing that looks for the record."""
        self._list_first = listed

    def list_beside(self, prefixes: Sequence[str]) -> None:
        """Let the listing that finds the record show these refs too: whoever asks for them next spares a call."""
        self._beside = frozenset(prefixes)

    def listed_beside(self, prefixes: Sequence[str]) -> Mapping[str, str] | None:
        """Return the refs that the listing showed beside the record, once; None where it was not asked for them all."""
        if not self._beside.issuperset(prefixes):
            return None
        listed, self._listed_beside, self._beside = self._listed_beside, None, frozenset()
        if listed is None:
            return None
        return {ref: oid for ref, oid in listed.items() if ref.startswith(tuple(prefixes))}

    def use_root(self, judge: JudgeRoot) -> None:
        """Go by the record of the root that this function accepts, from now on."""
        self._judge_root, self._record = judge, None

    def write_root(self, files: Mapping[str, bytes], moment: str, over: str | None) -> bool:
        """Replace the root's files at exactly this tip; return whether it landed."""
        landed = self._root.write(self.record().prefix, files, moment, over)
        self._record = None  # the root that is there now, ours or another writer's, says what the record is
        return landed is not None

    def record(self) -> BusRecord:
        """Return the bus record, read once.

        Raises:
            BusMovedError: the bus is at another remote.
            BusMissingError: the remote carries none.
            WrongBusError: it carries another one than the pinned one.
            BusError: two records and no pin, an unreadable record, one that needs a newer client, or no root where
                this reader needs to see it.
        """
        if self._record is None:
            self._tip, self._record = self._find()
            self._expect_id = self._record.bus_id  # another record later is another bus
        return self._record

    def check_tips(self, tip: str | None, root: str | None) -> None:
        """Read record and root again when a listing shows that one of them moved, or the root was not given before.

        Where the bus is at another remote, each later call says so again, and the record that was read stands for what
        still has to be ended here.

        Raises:
            BusMovedError, BusMissingError, WrongBusError, BusError: as `record`.
        """
        if (tip, root) == (self._tip, self._root_tip) and not self.is_root_withheld:
            if self._moved is not None:
                raise self._moved
            return
        before = self._record
        self._record = self._moved = None
        try:
            self.record()
        except BusMovedError as error:
            self._record, self._tip, self._root_tip, self._moved = before, tip, root, error
            raise
        except (ObjectError, MissingObjectError, BusMissingError):
            # Whoever may push can put anything there, or delete it; what was read stands until one can be read again.
            if before is None:
                raise
            self._record, self._tip, self._root_tip = before, tip, root

    def put_back(self) -> bool:
        """Write the record that was read anew where its ref was absent in the last listing; return whether it landed.

        Raises:
            RemoteError: the outcome is not known.
        """
        record = self.record()
        if self._tip is not None:
            return False
        ref = names.bus_ref(record.prefix)
        head, objects = commits.bus_commit(record, record.created)
        self._store.write(objects)
        landed = swap(self._store, [RefUpdate(ref, head.oid, None)], authority=ref)[ref].landed
        self._tip = head.oid if landed else None
        return landed

    def create(self, record: BusRecord, placement: Placement) -> None:
        """Write the record on a remote that carries none.

        Args:
            record: of the new bus.
            placement: where the remote lets a bus keep its refs, and how they move there.

        Raises:
            BusError: it carries one already, or the root of one.
        """
        roots = tips_of(self._store, [names.root_ref(prefix) for prefix in names.PREFIXES])
        if roots:
            raise BusError(
                f"{self._store.route} carries the root of a bus ({next(iter(roots))}), whose record was deleted",
                remedy="leave out --create-bus: a runner of that bus puts its record back, and readers go by its root",
            )
        trial = placement.trial
        if not self.create_if_missing(record.evolve(prefix=trial.prefix, renewals=trial.renewals)):
            raise BusError(f"{self._store.route} carries a bus already", remedy="leave out --create-bus")

    def create_if_missing(self, record: BusRecord) -> bool:
        """Write the record unless the remote carries one; return whether it was written."""
        from bridge.bus.refs.spaces import check_patterns  # readers never need it

        check_patterns(record.request_branches)
        if tips_of(self._store, [names.bus_ref(prefix) for prefix in names.PREFIXES]):
            return False
        ref = names.bus_ref(record.prefix)
        head, objects = commits.bus_commit(record, record.created, by=self._store.committer)
        self._store.write(objects)
        return swap(self._store, [RefUpdate(ref, head.oid, None)], authority=ref)[ref].landed

    def update(self, record: BusRecord, moment: str) -> None:
        """Replace the record by a newer one of the same bus: a child of the old one, by compare-and-swap.

        Args:
            record: the new record.
            moment: when, RFC 3339.

        Raises:
            BusError: the record moved meanwhile, or it is another bus's.
            UsageError: its patterns of request branches could catch other people's.
        """
        from bridge.bus.refs.spaces import check_patterns  # readers never need it

        check_patterns(record.request_branches)
        old = self.record()
        if (record.bus_id, record.prefix) != (old.bus_id, old.prefix) or self._tip is None:
            raise BusError(f"{self._store.route}: a bus keeps its id and its prefix")
        ref = names.bus_ref(record.prefix)
        head, objects = commits.bus_commit(record, moment, (self._tip,), self._store.committer)
        self._store.write(objects)
        if not swap(self._store, [RefUpdate(ref, head.oid, self._tip)], authority=ref)[ref].landed:
            raise BusError(f"another writer changed the bus record of {self._store.route}", remedy="run it again")
        self._record, self._tip = record, head.oid

    def _find(self) -> tuple[str | None, BusRecord]:
        records, roots = ([name(prefix) for prefix in self._prefixes] for name in (names.bus_ref, names.root_ref))
        beacons = tuple(names.beacon_ref(prefix, "") for prefix in self._prefixes)
        look, self._list_first = self._list_first or self._store.list, None
        listed = look([*records, *roots, *beacons, *sorted(self._beside)]).refs
        self._listed_beside = listed if self._beside else None
        tips = {ref: listed[ref] for ref in records if ref in listed}
        self._root_tip = next((listed[ref] for ref in sorted(roots) if ref in listed), None)
        self._beacons = {ref: oid for ref, oid in listed.items() if ref.startswith(beacons)}
        if (signed := self._signed(tips)) is not None:
            self._check(signed, is_signed=True)
            return tips.get(names.bus_ref(signed.prefix)), signed
        readable, unreadable = self._readable(tips)
        if not readable and unreadable is not None:
            raise unreadable
        if not readable:
            raise BusMissingError(
                f"{self._store.route} carries no bus",
                remedy="on the host: kakeya-runner serve --create-bus, or choose another remote with --bus ROUTE",
            )
        matching = [entry for entry in readable if self._expect_id in (None, entry[2].bus_id)]
        if not matching:
            raise WrongBusError(
                f"{self._store.route} carries bus {readable[0][2].bus_id}, expected {self._expect_id} (a fork?)",
                remedy=WRONG_BUS_REMEDY,
            )
        if len(matching) > 1:
            raise BusError(
                f"{self._store.route} carries two bus records, {' and '.join(entry[2].bus_id for entry in matching)}",
                remedy="pin the right one: --bus ROUTE#ID",
            )
        ref, oid, record = matching[0]
        if names.bus_ref(record.prefix) != ref:
            raise BusError(f"the bus record at {ref} says that its prefix is {record.prefix}")
        self._check(record, is_signed=False)
        return oid, record

    def _check(self, record: BusRecord, *, is_signed: bool) -> None:
        """Refuse the record of a bus that is elsewhere, or that needs a newer client.

        Raises:
            BusMovedError, BusError: it is one.
        """
        if _numbers(record.minimum_client) > _numbers(VERSION):
            raise BusError(
                f"this bus needs kakeya {record.minimum_client} or newer; this is {VERSION}", remedy="upgrade kakeya"
            )
        if not record.moved_to or self.reads_moved:
            return
        place = record.moved_to
        words = f"the bus of {self._store.route} moved to {place}"
        remedy = self._go_on.format(place=place, pinned=shlex.quote(f"{place}#{record.bus_id}"))
        if not is_signed:
            words = f"a record that nobody signed says that {words}"
            remedy = "ask the bus's owner: anybody who may push there can have written it"
        raise BusMovedError(words, moved_to=place, is_signed=is_signed, remedy=remedy)

    def _signed(self, tips: Mapping[str, str]) -> BusRecord | None:
        """Return the record in the root that this reader goes by, None where it goes by none.

        Raises:
            BusError: the reader needs to see a root that the remote does not give.
        """
        if self._judge_root is None:
            return None
        files = None if self._root_tip is None else self._root.files(self._root_tip)
        bus_id = self._expect_id
        if bus_id is None and tips:
            try:
                bus_id = next((self._read(ref, oid).bus_id for ref, oid in sorted(tips.items())), None)
            except BusError:
                if files is None:
                    return None  # which the search for the record itself reports
        if bus_id is None and files is not None:  # somebody deleted the record or pushed over it; the root holds it
            bus_id = _stated_id(files)
        if bus_id is None:
            return None
        try:
            return self._judge_root(files, bus_id)
        except (IntegrityError, UsageError) as error:  # what it says of a root without files
            if self.is_root_withheld:
                raise withheld(self._store.route) from error
            raise

    def _readable(self, tips: Mapping[str, str]) -> tuple[list[tuple[str, str, BusRecord]], BusError | None]:
        """Return the records that can be read, and what is wrong with one that cannot."""
        readable: list[tuple[str, str, BusRecord]] = []
        unreadable: BusError | None = None
        for ref, oid in sorted(tips.items()):
            try:
                readable.append((ref, oid, self._read(ref, oid)))
            except (ObjectError, MissingObjectError) as error:
                unreadable = type(error)(f"{ref}: {error.message}", remedy=_PUT_BACK)
        return readable, unreadable

    def _read(self, ref: str, oid: str) -> BusRecord:
        self._store.obtain({ref: oid}, max_bytes=MIB)
        with self._store.reader() as reader:
            head = commits.read_commit(reader, oid)
            entries = commits.read_entries(reader, head.tree)
            data = commits.read_file(reader, entries, commits.BUS_FILE, commits.RECORD_MAX_BYTES)
            _check_schema(ref, data)
            return commits.read_record(reader, oid, commits.BUS_FILE, BusRecord)[0]


def _stated_id(files: Mapping[str, bytes]) -> str | None:
    """Return the id of the bus that a root says it is of; whether it is, whoever judges the root finds out."""
    try:
        return BusRecord.parse(files[commits.BUS_FILE.decode()]).bus_id
    except (KeyError, ValueError):
        return None


def _check_schema(ref: str, data: bytes | None) -> None:
    """A newer record means "upgrade", never "absent"."""
    try:
        schema = json.loads(data or b"")["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedObjectError(f"{ref} holds no bus record") from error
    if not isinstance(schema, int) or schema in {PROTOCOL, MOVED}:
        return
    if schema > MOVED:
        raise BusError(f"the bus speaks protocol {schema}, this version {PROTOCOL}", remedy="upgrade kakeya")
    raise BusError(
        f"the bus speaks protocol {schema}, this version {PROTOCOL}; its results stay readable where they were fetched",
        remedy=f"on the host: git push ROUTE :{ref}, then kakeya-runner setup --bus ROUTE --create-bus",
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
