"""The real loop on a virtual clock, beside a drafter that answers late or never.

The target is a table; a plain forward takes the clock's ``target_ms``. Asking or waiting moves the clock by what the
drafter says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.local import LocalDrafter
from engine.drafters.none import NoDrafter
from engine.drafters.overtaken import Overtaken
from engine.protocols import Depth, Drafter
from engine.stopping import Stopping
from engine.types import Choice, Decision, Draft, Features, Forward

TARGET_MS = 10.0
ROW_SHARE = 0.02
PROMPT = (5,) * 20


def token_at(position: int) -> int:
    return (position * 7919) % 1009 + 10


@dataclass
class VirtualClock:
    target_ms: float = TARGET_MS
    eager: bool = True
    ns: int = 0
    busy_until_ns: int = 0
    """Until when a draft is under way."""

    def spend(self, milliseconds: float) -> None:
        self.ns += int(milliseconds * 1e6)

    def now_ns(self) -> int:
        return self.ns

    def host_ns(self) -> int:
        return self.ns


@dataclass
class TableSequence:
    clock: VirtualClock
    slows: float = 1.0
    """How many times longer a plain forward takes beside a draft that is under way: both need the same processor."""
    length: int = 0
    max_positions: int = 1 << 20

    def expect(self, new_tokens: int) -> None:
        del new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        self.length = len(ids)
        yield Forward(None, None, 0, len(ids))

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        self.clock.spend(self.clock.target_ms * (1 + ROW_SHARE * draft.count))
        forward = Forward(None, None, self.length, draft.count + 1)
        self.length += draft.count + 1
        return forward

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        for _ in range(limit):
            if not goes_on():
                return
            self.clock.spend(self.clock.target_ms * (self.slows if self.clock.ns < self.clock.busy_until_ns else 1.0))
            self.length += 1
            yield Decision((token_at(self.length),), 0), Forward(None, None, self.length - 1, 1)

    def committed(self, forward: Forward, rows: int) -> Features:
        return None

    def crop(self, length: int) -> None:
        self.length = length


class QueuedSequence(TableSequence):
    """Queues each forward before it reads the one before, and waits for a full queue: the first token takes two."""

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        def run() -> tuple[Decision, Forward]:
            self.clock.spend(self.clock.target_ms * (self.slows if self.clock.ns < self.clock.busy_until_ns else 1.0))
            self.length += 1
            return Decision((token_at(self.length),), 0), Forward(None, None, self.length - 1, 1)

        under_way = run()
        for index in range(limit):
            following = run() if index + 1 < limit and goes_on() else None
            yield under_way
            if following is None:
                return
            under_way = following


class TableAccept:
    greedy = True

    def first(self, forward: Forward) -> Decision:
        return Decision((token_at(forward.start + forward.rows),), 0)

    def decide(self, draft: Draft, forward: Forward) -> Decision:
        tokens = [token_at(forward.start + 1 + offset) for offset in range(draft.count + 1)]
        accepted = next((place for place in range(draft.count) if draft.tokens[place] != tokens[place]), draft.count)
        return Decision(tuple(tokens[: accepted + 1]), accepted)


@dataclass
class Answer:
    """A draft that is there ``wait_ms`` after it was asked for, or given up then."""

    clock: VirtualClock
    draft: Draft
    wait_ms: float

    def __post_init__(self) -> None:
        self.due_ns = self.clock.busy_until_ns = self.clock.ns + int(self.wait_ms * 1e6)

    def take(self, wait_s: float | None) -> Draft:
        left_ms = max(0.0, (self.due_ns - self.clock.ns) / 1e6)
        self.clock.spend(left_ms if wait_s is None else min(left_ms, wait_s * 1e3))
        if self.clock.ns < self.due_ns:
            return Draft(under_way=True, came_s=self.wait_ms / 1e3 - (self.due_ns - self.clock.ns) / 1e9)
        return replace(self.draft, came_s=self.wait_ms / 1e3)


class GoingOn(FixedDepth):
    """Always drafts as much, and waits for no draft."""

    def choose(self, *args: Any) -> Choice:
        return replace(super().choose(*args), wait_s=0.0)


@dataclass
class RemoteDrafter(LocalDrafter):
    """Knows every token; ``answers`` says at which position it gives one. Waits inside ``ask`` if it ``blocks``.

    ``trip_ms`` of the ``wait_ms`` are known before it is asked.
    """

    clock: VirtualClock
    wait_ms: float
    trip_ms: float = 0.0
    answers: Callable[[int], bool] = lambda _: False
    right: Callable[[int], bool] = lambda _: True
    blocks: bool = False
    positions: list[int] = field(default_factory=list)
    forwards: int = 0
    answer: Answer | None = None
    overtaken: Overtaken = field(default_factory=lambda: Overtaken(0))

    def round_trip_s(self, source: str) -> float:
        return self.trip_ms / 1e3

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        self.positions.append(position)
        places = range(position + 1, position + 1 + count)
        draft = Draft(tuple(token_at(place) + (not self.right(place)) for place in places), count)
        draft = draft if self.answers(position) else Draft(skipped="given up")
        if self.blocks:
            self.clock.spend(self.wait_ms)
            return draft
        self.answer, self.overtaken = Answer(self.clock, draft, self.wait_ms), Overtaken(position)
        return self.answer.take(wait_s)

    def ready(self, bonus: int) -> Draft:
        assert self.answer is not None
        return self.overtaken.left(self.answer.take(0.0), bonus)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        self.overtaken.observe(start, tokens)

    def measured_bytes(self) -> int:
        return 0


def decoded_ms(
    make: Callable[[VirtualClock], Drafter],
    depth: Depth,
    tokens: int,
    slows: float = 1.0,
    kind: Any = TableSequence,
    target_ms: float = TARGET_MS,
) -> float:
    clock = VirtualClock(target_ms)
    parts = Parts(kind(clock, slows), make(clock), TableAccept(), depth, clock)  # type: ignore[arg-type]
    emitted = [token for step in speculative(parts, PROMPT, Stopping(tokens)) for token in step.tokens]
    assert emitted == [token_at(len(PROMPT) + index) for index in range(tokens)]
    return clock.ns / 1e6


@cache
def plainly_ms(tokens: int) -> float:
    """Return how long plain decoding takes: on a virtual clock it is the same each time."""
    return decoded_ms(lambda _: NoDrafter(), FixedDepth(0), tokens)


def speed(
    tokens: int, depth: Depth | None = None, slows: float = 1.0, kind: Any = TableSequence, **drafter: Any
) -> tuple[float, RemoteDrafter]:
    """Return the speed against plain decoding, 1 is equal, and the drafter."""
    made: list[RemoteDrafter] = []

    def make(clock: VirtualClock) -> Drafter:
        made.append(RemoteDrafter(clock, **drafter))
        return made[0]

    return plainly_ms(tokens) / decoded_ms(make, depth or ControlledDepth(7), tokens, slows, kind), made[0]
