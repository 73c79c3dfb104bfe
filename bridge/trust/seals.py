"""Seal the refs that a runner writes, and verify the seals of other runners.

A seal is a DSSE signature (https://github.com/secure-systems-lab/dsse, protocol.md) over a statement that every reader
builds itself: kind of ref, bus, ref, runner, parent commits, digest of the record. It is the last line of the commit's
message, so trees and the claim chain in a result stay as they are. The record carries run, number, nonce and time.

Knows no key: an implementation of `Seals` decides which key may sign for which runner.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from bridge import ids, strictjson
from bridge.system.clock import parse_rfc3339
from bridge.system.gitobjects import KAKEYA, Committer
from bridge.trust.judgement import UNCHECKED, TrustAnswer

if TYPE_CHECKING:
    from bridge.records.base import Record
    from bridge.records.bus import BusRecord
    from bridge.system.gitobjects import Commit

SealedKind = Literal["claim", "beacon", "log", "archive"]
REFUSED_MAX_COUNT: Final = 256
# 64 bytes of ed25519 signature are 86 base64 characters and two of padding; the name is a record's `Name`.
_LINE: Final = re.compile(r"\n\nKakeya-Seal: ([a-z0-9][a-z0-9._-]{0,62}) ([A-Za-z0-9+/]{86}==)\n\Z")


@dataclass(frozen=True)
class Statement:
    """The facts that a seal signs.

    Attributes:
        kind: what the record is; it is in the payload type, so a seal of one kind fits no other.
        bus_id, ref: the only bus and ref on which the seal is valid.
        runner: the runner that signs.
        parents: the parents of the sealed commit.
        record: canonical bytes of the claim, beacon or log head.
        at: the latest time that the record names, seconds since the epoch; it is in those bytes.
        archived_at: when another runner archived it, seconds since the epoch; not signed here. None where none did.
        by: who made the commit; signed where that is not the usual one, so that nobody else can make another of it.
    """

    kind: SealedKind
    bus_id: str
    ref: str
    runner: str
    parents: tuple[str, ...]
    record: bytes
    at: float | None = None
    archived_at: float | None = None
    by: Committer = KAKEYA

    @property
    def payload_type(self) -> str:
        """The DSSE payload type, which is part of what is signed."""
        return f"application/vnd.kakeya.{self.kind}.v1+json"

    def payload(self) -> bytes:
        """Return the signed bytes."""
        fields: dict[str, Any] = {
            "bus_id": self.bus_id,
            "ref": self.ref,
            "runner": self.runner,
            "parents": list(self.parents),
            "record_sha256": hashlib.sha256(self.record).hexdigest(),
        }
        if self.by != KAKEYA:
            fields["committer"] = [self.by.who, self.by.prefix]
        return strictjson.encode(fields)


@dataclass(frozen=True)
class Seal:
    """An unverified signature of a commit message: the runner it names, and 64 bytes in base64."""

    runner: str
    signature: str

    def line(self) -> str:
        """Return the last line of the sealed commit's message."""
        return f"\n\nKakeya-Seal: {self.runner} {self.signature}"


@dataclass(frozen=True)
class Refused:
    """A record on the bus that readers treat as absent: its kind, the runner it names, its place, and the reason.

    `revoked` says that the key is its runner's, and the owner revoked it.
    """

    kind: SealedKind
    runner: str
    ref: str
    oid: str
    why: str
    revoked: bool = False


class Seals(Protocol):
    """The keys with which one side of a bus signs and verifies."""

    @property
    def verifies(self) -> bool:
        """Whether signatures are checked; where not, the answer is ``unsigned`` and none is computed."""
        ...

    def sign(self, statement: Statement) -> Seal | None:
        """Return a seal, or None where this side has no key or the statement names another runner."""
        ...

    def verify(self, statement: Statement, seal: Seal | None, *, follows_signed: bool = False) -> TrustAnswer:
        """Return whether a seal lets its runner say this here.

        Args:
            statement: the statement it must have signed.
            seal: the commit's seal, or None.
            follows_signed: whether the record continues what another seal made its own.
        """
        ...


class NoSeals:
    """Seals of a side without keys: signs nothing and checks nothing."""

    verifies = False

    def sign(self, statement: Statement) -> Seal | None:
        """Return None: there is no key to sign with."""
        del statement
        return None

    def verify(self, statement: Statement, seal: Seal | None, *, follows_signed: bool = False) -> TrustAnswer:
        """Return that signatures are not checked here."""
        del statement, seal, follows_signed
        return UNCHECKED


def latest_time_of(record: Record) -> float | None:
    """Return the latest time that a record names: its own and that of its run id; None where it names none."""
    from bridge.records.archive import ArchiveHead
    from bridge.records.bus import Beacon
    from bridge.records.claim import Claim
    from bridge.records.logs import LogHead

    times = [ids.unix_ms(record.id) / 1000] if isinstance(record, Claim | LogHead) else []
    times += [parse_rfc3339(record.time).timestamp()] if isinstance(record, (Claim, Beacon, ArchiveHead)) else []
    return max(times, default=None)


def seal_in(message: str) -> Seal | None:
    """Return the seal that a commit message carries, or None."""
    match = _LINE.search(message)
    return None if match is None else Seal(match[1], match[2])


class BusSeals:
    """The seals of one bus: binds statements to its id, and remembers the records that were refused.

    Args:
        record: reads the bus record as it is now.
    """

    def __init__(self, record: Callable[[], BusRecord]) -> None:
        self._record = record
        self._refused: dict[tuple[str, str], Refused] = {}
        self.seals: Seals = NoSeals()

    @property
    def verifies(self) -> bool:
        """Whether signatures are checked here."""
        return self.seals.verifies

    @property
    def configured(self) -> bool:
        """Whether seals were given: only then does an unsigned claim after a sealed one matter."""
        return not isinstance(self.seals, NoSeals)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The refused records, newest last, at most REFUSED_MAX_COUNT."""
        return tuple(self._refused.values())

    def sign(
        self,
        kind: SealedKind,
        ref: str,
        runner: str,
        parents: tuple[str, ...],
        record: Record,
        *,
        by: Committer = KAKEYA,
    ) -> Seal | None:
        """Return this side's seal of a record, or None where it does not sign."""
        if not self.configured:
            return None
        bus_id = self._record().bus_id
        return self.seals.sign(Statement(kind, bus_id, ref, runner, parents, record.canonical(), by=by))

    def verify(
        self,
        kind: SealedKind,
        ref: str,
        *,
        runner: str,
        head: Commit,
        record: Record,
        by: Committer = KAKEYA,
        follows_signed: bool = False,
        archived_at: float | None = None,
    ) -> TrustAnswer:
        """Return whether a commit's seal lets a runner say this record on this ref."""
        if not self.configured:
            return UNCHECKED
        statement = Statement(
            kind, self._record().bus_id, ref, runner, head.parents, record.canonical(), latest_time_of(record),
            archived_at, by,
        )  # fmt: skip
        return self.seals.verify(statement, seal_in(head.message), follows_signed=follows_signed)

    def note(self, kind: SealedKind, runner: str, ref: str, oid: str, answer: TrustAnswer) -> None:
        """Remember a refused record; forget it where its signature is no longer refused."""
        self._refused.pop((ref, oid), None)
        if not answer.refused:
            return
        if len(self._refused) >= REFUSED_MAX_COUNT:
            self._refused.pop(next(iter(self._refused)))
        self._refused[ref, oid] = Refused(kind, runner, ref, oid, answer.why, answer.revoked)

    def forget(self, kind: SealedKind, runner: str) -> None:
        """Forget the refused records of a runner before its newest one is verified."""
        self._refused = {
            key: refused for key, refused in self._refused.items() if (refused.kind, refused.runner) != (kind, runner)
        }
