"""Who is there and what each can do, as one node knows it: what it tells, takes, keeps and forgets.

After chitchat (quickwit-oss/chitchat, ALGORITHM.md):

1. A card is its owner's: nobody else changes it. Of two the larger (generation, version) counts; a start is a larger
   generation.
2. Alive is whose heartbeat went on within ``ttl_s``, by this node's own monotonic clock. How long a card was silent
   travels with it as a duration, so that passing it on makes it no younger.
3. What was silent for longer is a tombstone for four times as long: told to nobody, taken back only with a larger
   generation or heartbeat, so that no relay raises the dead.
4. Bytes of a card are passed on as they came, with what is unknown here; a bad card ends nothing but itself.

Knows no sockets; time comes in as functions: monotonic seconds, and the day's milliseconds that generations are.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from google.protobuf.message import DecodeError

from engine.distributed.kakeya.v1 import capability_pb2 as pb
from engine.errors import UsageError

TTL_S = 5.0
ROUND_S = 1.0
TOMBSTONE_TTLS = 4
FANOUT = 3
MOST_NODES = 256
MOST_TOMBSTONES = 8 * MOST_NODES
"""Beyond them the earliest is forgotten: who makes up names by the thousand may then raise one that is dead."""
MOST_CARD_BYTES = 1 << 14
MOST_NAME_CHARS = 100
MOST_VERSION = 1 << 62
MOST_AHEAD_MS = 86_400_000
"""How far a generation may be ahead of this node's time of day, since a start's is its clock's milliseconds. There is
always a larger one a moment later, so an owner can outdo any card that is taken."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Known:
    """Another node's card: the bytes as they came, how new they are, and when its owner was last heard of."""

    data: bytes
    generation: int
    version: int
    heartbeat: int
    heard_s: float


@dataclass(frozen=True, slots=True)
class _Tombstone:
    generation: int
    heartbeat: int
    until_s: float


class Membership:
    """What one node knows; ``card`` is its own, ``clashes`` how often its name was seen in somebody else's hands.

    Raises:
        UsageError: If no other node would take that card.
    """

    def __init__(
        self,
        card: pb.Card,
        now_s: Callable[[], float],
        ttl_s: float = TTL_S,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self._now_ms = now_ms
        self._check_own(card)
        self.clashes = 0
        self.refused: Counter[str] = Counter()
        self._card = pb.Card()
        self._card.CopyFrom(card)
        self._heartbeat = 1
        self._now_s = now_s
        self._ttl_s = ttl_s
        self._known: dict[str, _Known] = {}
        self._tombstones: dict[str, _Tombstone] = {}

    @property
    def node(self) -> str:
        """This node's name."""
        return str(self._card.node)

    def beat(self) -> None:
        """Say once more that this node lives, and forget who does not."""
        self._heartbeat += 1
        self._sweep()

    def rewrite(self, card: pb.Card) -> None:
        """Take what this node can do now; name and generation stay, the version grows.

        Raises:
            UsageError: If no other node would take that card; the one before it stays.
        """
        own = pb.Card()
        own.CopyFrom(card)
        own.node, own.generation, own.version = self._card.node, self._card.generation, self._card.version + 1
        self._check_own(own)
        self._card = own

    def cards(self) -> dict[str, pb.Card]:
        """Return the cards of all that live, this node's too, by name."""
        self._sweep()
        found = {name: pb.Card.FromString(known.data) for name, known in self._known.items()}
        own = pb.Card()
        own.CopyFrom(self._card)
        return dict(sorted((found | {self.node: own}).items()))

    def told(self) -> list[pb.ToldCard]:
        """Return every card of a node that lives, as it is told."""
        return self._told([self.node, *self._known])

    def ask(self) -> pb.ExchangeRequest:
        """Begin an exchange: say what is known here."""
        self._sweep()
        return pb.ExchangeRequest(known=self._ages())

    def answer(self, request: pb.ExchangeRequest) -> pb.ExchangeResponse:
        """Take what another node says; return what it lacks, and name what is wanted of it."""
        self._sweep()
        self._take(request.told)
        wanted = self._hear(request.known)
        lacking = self._newer_than(request.known) if request.known else []
        return pb.ExchangeResponse(known=self._ages(), told=self._told(lacking), wanted=wanted)

    def take(self, response: pb.ExchangeResponse) -> pb.ExchangeRequest | None:
        """Take an answer; return what was wanted, None where nothing was."""
        self._take(response.told)
        self._hear(response.known)
        # Each name once: a message has room for a name a million times, and each would be a card's bytes.
        wanted = dict.fromkeys(response.wanted)
        told = self._told(name for name in wanted if name == self.node or name in self._known)
        return pb.ExchangeRequest(told=told) if told else None

    def _ages(self) -> list[pb.CardAge]:
        now_s = self._now_s()
        own = pb.CardAge(
            node=self.node, generation=self._card.generation, version=self._card.version, heartbeat=self._heartbeat
        )
        return [
            own,
            *(
                pb.CardAge(
                    node=name,
                    generation=known.generation,
                    version=known.version,
                    heartbeat=known.heartbeat,
                    silent_ms=math.ceil(1e3 * (now_s - known.heard_s)),
                )
                for name, known in sorted(self._known.items())
            ),
        ]

    def _told(self, names: Iterable[str]) -> list[pb.ToldCard]:
        now_s, found = self._now_s(), []
        for name in names:
            if name == self.node:
                found.append(pb.ToldCard(card=self._card.SerializeToString(), heartbeat=self._heartbeat))
                continue
            known = self._known[name]
            silent_ms = math.ceil(1e3 * (now_s - known.heard_s))
            found.append(pb.ToldCard(card=known.data, heartbeat=known.heartbeat, silent_ms=silent_ms))
        return found

    def _newer_than(self, ages: Iterable[pb.CardAge]) -> list[str]:
        theirs = {age.node: (age.generation, age.version) for age in ages}
        ours = {name: (known.generation, known.version) for name, known in self._known.items()}
        ours[self.node] = (self._card.generation, self._card.version)
        return sorted(name for name, key in ours.items() if key > theirs.get(name, (-1, -1)))

    def _hear(self, ages: Iterable[pb.CardAge]) -> list[str]:
        """Take heartbeats; return the nodes of which there are newer cards than here."""
        wanted = []
        for age in ages:
            if self._from_nowhere(age.generation, age.version):
                continue
            if age.node == self.node:
                self._defend(age.generation, age.version, age.heartbeat)
                continue
            if not self._alive(age.node, age.generation, age.heartbeat, age.silent_ms):
                continue
            known = self._known.get(age.node)
            if known is None or (age.generation, age.version) > (known.generation, known.version):
                wanted.append(age.node)
            if known is not None and age.generation == known.generation and age.heartbeat > known.heartbeat:
                known.heartbeat = age.heartbeat
                known.heard_s = max(known.heard_s, self._now_s() - age.silent_ms / 1e3)
        return wanted

    def _take(self, told: Iterable[pb.ToldCard]) -> None:
        for one in told:
            reason = unreadable(one.card)
            card = pb.Card() if reason else pb.Card.FromString(one.card)
            reason = reason or self._from_nowhere(card.generation, card.version)
            if reason:
                self.refused[reason] += 1
                continue
            if card.node == self.node:
                self._defend(card.generation, card.version, one.heartbeat)
            elif self._alive(card.node, card.generation, one.heartbeat, one.silent_ms):
                self._keep(card, one)

    def _keep(self, card: pb.Card, told: pb.ToldCard) -> None:
        known, heard_s = self._known.get(card.node), self._now_s() - told.silent_ms / 1e3
        key = (card.generation, card.version, told.card)
        if known is None and len(self._known) + 1 >= MOST_NODES:
            self.refused["too many nodes"] += 1
            return
        # Of two cards of one version, which no honest owner writes, every node keeps the same.
        if known is None or key > (known.generation, known.version, known.data):
            heartbeat = told.heartbeat
            if known is not None and known.generation == card.generation:
                heartbeat, heard_s = max(heartbeat, known.heartbeat), max(heard_s, known.heard_s)
            self._known[card.node] = _Known(told.card, card.generation, card.version, heartbeat, heard_s)
            self._tombstones.pop(card.node, None)

    def _alive(self, node: str, generation: int, heartbeat: int, silent_ms: int) -> bool:
        """Say whether what is told of a node is news of one that lives."""
        grave = self._tombstones.get(node)
        return silent_ms < 1e3 * self._ttl_s and (
            grave is None or (generation, heartbeat) > (grave.generation, grave.heartbeat)
        )

    def _defend(self, generation: int, version: int, heartbeat: int) -> None:
        """Outdo whoever else writes under this node's name."""
        own = self._card
        if generation > own.generation or (
            generation == own.generation and (version > own.version or heartbeat > self._heartbeat)
        ):
            self.clashes += 1
            self._heartbeat = 1
            own.generation = generation + 1

    def _from_nowhere(self, generation: int, version: int) -> str:
        """Return why no node can have written a card with these numbers, empty where one can."""
        if generation > self._now_ms() + MOST_AHEAD_MS:
            return "a generation more than a day ahead: that of a start is its clock's milliseconds"
        return "a version beyond every honest one" if version > MOST_VERSION else ""

    def _check_own(self, card: pb.Card) -> None:
        """Raise UsageError where other nodes would refuse this node's own card."""
        data = card.SerializeToString()
        reason = unreadable(data) or self._from_nowhere(card.generation, card.version)
        if reason:
            raise UsageError(
                f"this node's own card is refused by every other: {reason}. It has {len(data)} bytes, a name of "
                f"{len(card.node)} characters, generation {card.generation} and version {card.version}; expected at "
                f"most {MOST_CARD_BYTES} bytes, 1 to {MOST_NAME_CHARS} characters. Give a shorter --name."
            )

    def _sweep(self) -> None:
        now_s = self._now_s()
        for name, known in list(self._known.items()):
            if now_s - known.heard_s >= self._ttl_s:
                del self._known[name]
                self._bury(name, known, now_s)
        over = takewhile(lambda grave: grave[1].until_s <= now_s, self._tombstones.items())
        for name in [name for name, _ in over]:
            del self._tombstones[name]

    def _bury(self, name: str, known: _Known, now_s: float) -> None:
        """Keep a tombstone; the earliest is always the first."""
        until_s = now_s + TOMBSTONE_TTLS * self._ttl_s
        self._tombstones.pop(name, None)
        self._tombstones[name] = _Tombstone(known.generation, known.heartbeat, until_s)
        if len(self._tombstones) > MOST_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]


def unreadable(data: bytes) -> str:
    """Return why every node refuses a card, empty where none does."""
    if len(data) > MOST_CARD_BYTES:
        return f"a card of more than {MOST_CARD_BYTES} bytes"
    try:
        card = pb.Card.FromString(data)
    except DecodeError:
        return "no card"
    return "" if 0 < len(card.node) <= MOST_NAME_CHARS else "a card without a usable name"


def asked_next(addresses: Sequence[str], chooser: random.Random) -> list[str]:
    """Return whom to ask in a round: up to three of those known."""
    return chooser.sample(sorted(addresses), min(FANOUT, len(addresses)))
