"""What a runner signs of the refs it writes, and what a reader makes of a signature.

A seal is a DSSE signature over a statement that every reader puts together itself: which kind of ref, which bus, which
ref, which runner, the commits before, the digest of the record. It travels as the last line of the commit's message, so
that trees, and the claim chain in a result, stay as they are. The record carries run, number, nonce and time.

Knows no key: who may sign for whom is decided by an implementation of `Seals`.
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

Kind = Literal["claim", "beacon", "log"]
REFUSED_MAX_COUNT: Final = 256
_LINE: Final = re.compile(r"\n\nKakeya-Seal: ([a-z0-9][a-z0-9._-]{0,62}) ([A-Za-z0-9+/]{86}==)\n\Z")


@dataclass(frozen=True)
class Statement:
    """What is signed.

    Attributes:
        kind: a claim, a beacon or a log head; no signature of one counts as one of another.
        bus_id, ref: where it stands, and nowhere else.
        runner: in whose name.
        parents: the commits it follows.
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
    """A signature as it was found: who says to have made it, and 64 bytes in base64. Proves nothing by itself."""

    runner: str
    signature: str

    def line(self) -> str:
        """Return the end of a commit message that carries it."""
        return f"\n\nKakeya-Seal: {self.runner} {self.signature}"


@dataclass(frozen=True)
class SignatureState:
    """What a signature comes to.

    Attributes:
        state: ``verified``; ``unproven``: nobody here knows a key of that name, or none is asked for; ``refused``: a
            key is known and this is not signed by it, or a signature is demanded.
        why: the reason in a few words, of anything but ``verified``.
    """

    state: Literal["verified", "unproven", "refused"]
    why: str = ""

    @property
    def refused(self) -> bool:
        """Whether it counts as not being there."""
        return self.state == "refused"


VERIFIED: Final = SignatureState("verified")
UNPROVEN: Final = SignatureState("unproven", "nobody asked who wrote it")


@dataclass(frozen=True)
class Refused:
    """Something on the bus that does not count: what, in whose name, where, and why."""

    kind: Kind
    runner: str
    ref: str
    oid: str
    why: str


class Seals(Protocol):
    """Keys of one reader or writer."""

    @property
    def judging(self) -> bool:
        """Whether anything is judged; without, everything is unproven and nothing is computed."""
        ...

    def sign(self, statement: Statement) -> Seal | None:
        """Return a seal, or None where this side has no key or the statement is in another name."""
        ...

    def judge(self, statement: Statement, seal: Seal | None, offered: Sequence[KeyRecord]) -> SignatureState:
        """Return what a seal comes to.

        Args:
            statement: what it would have to be about.
            seal: what was found, or None.
            offered: the keys that the bus names; no reason to trust one.
        """
        ...


class NoSeals:
    """Neither signs nor asks."""

    judging = False

    def sign(self, statement: Statement) -> Seal | None:
        """Return None."""
        del statement
        return None

    def judge(self, statement: Statement, seal: Seal | None, offered: Sequence[KeyRecord]) -> SignatureState:
        """Return that nobody asked."""
        del statement, seal, offered
        return UNPROVEN


def seal_in(message: str) -> Seal | None:
    """Return the seal that a commit message carries, or None."""
    found = _LINE.search(message)
    return None if found is None else Seal(found[1], found[2])


class BusSeals:
    """The seals of one bus: binds statements to its id, and remembers what was refused.

    Args:
        record: reads the bus record as it is now.
    """

    def __init__(self, record: Callable[[], BusRecord]) -> None:
        self._record = record
        self._verified: set[str] = set()
        self._refused: dict[tuple[str, str], Refused] = {}
        self.seals: Seals = NoSeals()

    @property
    def judging(self) -> bool:
        """Whether signatures are checked here."""
        return self.seals.judging

    @property
    def asking(self) -> bool:
        """Whether it matters here what is signed, also where no signature can be checked."""
        return not isinstance(self.seals, NoSeals)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """What was seen and did not count, newest last; bounded."""
        return tuple(self._refused.values())

    def sign(self, kind: Kind, ref: str, runner: str, parents: tuple[str, ...], record: Record) -> Seal | None:
        """Return this side's seal, or None where it does not sign."""
        if not self.asking:
            return None
        return self.seals.sign(Statement(kind, self._record().bus_id, ref, runner, parents, record.canonical()))

    def judge(self, kind: Kind, ref: str, oid: str, *, runner: str, head: Commit, record: Record) -> SignatureState:
        """Return what a commit's seal comes to; one that was verified stays so, one that was not is asked again."""
        if not self.judging:
            return UNPROVEN
        if oid in self._verified:
            return VERIFIED
        bus = self._record()
        statement = Statement(kind, bus.bus_id, ref, runner, head.parents, record.canonical())
        found = self.seals.judge(statement, seal_in(head.message), bus.keys)
        if found.state == "verified":
            self._verified.add(oid)
        return found

    def note(self, kind: Kind, runner: str, ref: str, oid: str, standing: SignatureState) -> None:
        """Remember what was refused; what counts after all is forgotten."""
        self._refused.pop((ref, oid), None)
        if not standing.refused:
            return
        if len(self._refused) >= REFUSED_MAX_COUNT:
            self._refused.pop(next(iter(self._refused)))
        self._refused[ref, oid] = Refused(kind, runner, ref, oid, standing.why)

    def forget(self, kind: Kind, runner: str) -> None:
        """Forget what was refused in a runner's name: it is judged anew."""
        self._refused = {key: one for key, one in self._refused.items() if (one.kind, one.runner) != (kind, runner)}
