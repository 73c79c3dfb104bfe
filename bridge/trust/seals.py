"""Seal the refs that a runner writes, and verify the seals of other runners.

A seal is a DSSE signature (https://github.com/secure-systems-lab/dsse, protocol.md) over a statement that every reader
builds itself: kind of ref, bus, ref, runner, parent commits, digest of the record. It is the last line of the commit's
message, so trees and the claim chain in a result stay as they are. The record carries run, number, nonce and time.

Knows no key: an implementation of `Seals` decides which key may sign for which runner.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from bridge import strictjson
from bridge.records import BusRecord, KeyRecord, Record
from bridge.system.gitobjects import Commit

Kind = Literal["claim", "beacon", "log", "archive"]
REFUSED_MAX_COUNT: Final = 256
# 64 bytes of ed25519 signature are 86 base64 characters and two of padding; the name is a record's `Name`.
_LINE: Final = re.compile(r"\n\nKakeya-Seal: ([a-z0-9][a-z0-9._-]{0,62}) ([A-Za-z0-9+/]{86}==)\n\Z")


@dataclass(frozen=True)
class Statement:
    """The facts that a seal signs.

    Attributes:
        kind: a claim, a beacon or a log head; it is in the payload type, so a seal of one kind fits no other.
        bus_id, ref: the only bus and ref on which the seal is valid.
        runner: the runner that signs.
        parents: the parents of the sealed commit.
        record: canonical bytes of the claim, beacon or log head.
    """

    kind: Kind
    bus_id: str
    ref: str
    runner: str
    parents: tuple[str, ...]
    record: bytes

    @property
    def payload_type(self) -> str:
        """The DSSE payload type, which is part of what is signed."""
        return f"application/vnd.kakeya.{self.kind}.v1+json"

    def payload(self) -> bytes:
        """Return the signed bytes."""
        return strictjson.encode(
            {
                "bus_id": self.bus_id,
                "ref": self.ref,
                "runner": self.runner,
                "parents": list(self.parents),
                "record_sha256": hashlib.sha256(self.record).hexdigest(),
            }
        )


@dataclass(frozen=True)
class Seal:
    """An unverified signature of a commit message: the runner it names, and 64 bytes in base64."""

    runner: str
    signature: str

    def line(self) -> str:
        """Return the last line of the sealed commit's message."""
        return f"\n\nKakeya-Seal: {self.runner} {self.signature}"


@dataclass(frozen=True)
class SignatureState:
    """The outcome of verifying a signature.

    Attributes:
        state: ``verified``; ``unverified``: this side knows no key of that runner, or does not check signatures;
            ``refused``: a key is known or a signature is demanded, and the signature is absent or not by that key.
        why: the reason in a few words, empty where verified.
    """

    state: Literal["verified", "unverified", "refused"]
    why: str = ""

    @property
    def refused(self) -> bool:
        """Whether a reader treats the signed record as absent."""
        return self.state == "refused"


VERIFIED: Final = SignatureState("verified")
UNVERIFIED: Final = SignatureState("unverified", "signatures are not checked here")


@dataclass(frozen=True)
class Refused:
    """A record on the bus that readers treat as absent: its kind, the runner it names, its place, and the reason."""

    kind: Kind
    runner: str
    ref: str
    oid: str
    why: str


class Seals(Protocol):
    """The keys with which one side of a bus signs and verifies."""

    @property
    def verifies(self) -> bool:
        """Whether signatures are checked; where not, every one is `UNVERIFIED` and none is computed."""
        ...

    def sign(self, statement: Statement) -> Seal | None:
        """Return a seal, or None where this side has no key or the statement names another runner."""
        ...

    def verify(self, statement: Statement, seal: Seal | None, offered: Sequence[KeyRecord]) -> SignatureState:
        """Return the state of a seal.

        Args:
            statement: the statement it must have signed.
            seal: the commit's seal, or None.
            offered: the keys in the bus record; being listed there makes no key trusted.
        """
        ...


class NoSeals:
    """Seals of a side without keys: signs nothing and checks nothing."""

    verifies = False

    def sign(self, statement: Statement) -> Seal | None:
        """Return None: there is no key to sign with."""
        del statement
        return None

    def verify(self, statement: Statement, seal: Seal | None, offered: Sequence[KeyRecord]) -> SignatureState:
        """Return `UNVERIFIED`."""
        del statement, seal, offered
        return UNVERIFIED


def seal_in(message: str) -> Seal | None:
    """Return the seal that a commit message carries, or None."""
    found = _LINE.search(message)
    return None if found is None else Seal(found[1], found[2])


class BusSeals:
    """The seals of one bus: binds statements to its id, and remembers the records that were refused.

    Args:
        record: reads the bus record as it is now.
    """

    def __init__(self, record: Callable[[], BusRecord]) -> None:
        self._record = record
        self._verified: set[str] = set()
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

    def sign(self, kind: Kind, ref: str, runner: str, parents: tuple[str, ...], record: Record) -> Seal | None:
        """Return this side's seal of a record, or None where it does not sign."""
        if not self.configured:
            return None
        return self.seals.sign(Statement(kind, self._record().bus_id, ref, runner, parents, record.canonical()))

    def verify(self, kind: Kind, ref: str, oid: str, *, runner: str, head: Commit, record: Record) -> SignatureState:
        """Return the state of a commit's seal; a verified one is remembered, any other is verified again each time."""
        if not self.verifies:
            return UNVERIFIED
        if oid in self._verified:
            return VERIFIED
        bus = self._record()
        statement = Statement(kind, bus.bus_id, ref, runner, head.parents, record.canonical())
        found = self.seals.verify(statement, seal_in(head.message), bus.keys)
        if found.state == "verified":
            self._verified.add(oid)
        return found

    def note(self, kind: Kind, runner: str, ref: str, oid: str, signature: SignatureState) -> None:
        """Remember a refused record; forget it where its signature is no longer refused."""
        self._refused.pop((ref, oid), None)
        if not signature.refused:
            return
        if len(self._refused) >= REFUSED_MAX_COUNT:
            self._refused.pop(next(iter(self._refused)))
        self._refused[ref, oid] = Refused(kind, runner, ref, oid, signature.why)

    def forget(self, kind: Kind, runner: str) -> None:
        """Forget the refused records of a runner before its newest one is verified."""
        self._refused = {key: one for key, one in self._refused.items() if (one.kind, one.runner) != (kind, runner)}
