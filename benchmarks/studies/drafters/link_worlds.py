"""The loop beside drafters elsewhere on a virtual clock: links that jitter, stall and fall silent, drafts good and bad.

A point is a link, a drafter, a target and how much longer its plain steps take while a draft is under way. A drafter
that is silent is given up as a remote one is: after twice its slowest draft of late, and asked again after a pause that
doubles. The clock is virtual, so a point is the same on any machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import geometric_mean

from benchmarks.studies.study import Entry, Row, Study, rows_of
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.patience import Patience
from engine.distributed.remote_drafter import FIRST_RETRY_S, LONGEST_RETRY_S, PATIENCE_S
from engine.drafters.none import NoDrafter
from engine.drafters.overtaken import Overtaken
from engine.types import Draft
from tests.fakes.virtual_loop import (
    Answer,
    QueuedSequence,
    RemoteDrafter,
    TableSequence,
    decoded_ms,
    token_at,
)

TOKENS, SEEDS, LONGEST, DRAFT_MS = 512, 3, 7, 3.0
TARGETS_MS, SLOWS = (3.0, 10.0, 40.0), (1.0, 1.3)
KINDS = {"table": TableSequence, "queued": QueuedSequence}
SILENT_MS = math.inf
Wait = Callable[[float, random.Random], float]
"""Milliseconds from an ask at a moment, in ms, to its draft."""


@dataclass(frozen=True)
class Link:
    """Milliseconds that a call is known to take before anything is asked, and what drafts then take."""

    trip_ms: float
    wait: Wait

    @property
    def falls_silent(self) -> bool:
        """Whether there is a time at which nothing comes any more."""
        return any(math.isinf(self.wait(at_ms, random.Random(0))) for at_ms in (1500.0, 3000.0))


LINKS = {
    "5 ms": Link(5, lambda _, __: 5 + DRAFT_MS),
    "50 ms": Link(50, lambda _, __: 50 + DRAFT_MS),
    "150 ms": Link(150, lambda _, __: 150 + DRAFT_MS),
    "300 ms": Link(300, lambda _, __: 300 + DRAFT_MS),
    "5 to 200 ms": Link(5, lambda _, drawn: 5 + DRAFT_MS + 195 * drawn.random() ** 2),
    "lognormal about 20 ms": Link(20, lambda _, drawn: 20 * math.exp(drawn.gauss(0, 0.8)) + DRAFT_MS),
    "300 ms more in 3 %": Link(10, lambda _, drawn: 10 + DRAFT_MS + 300 * (drawn.random() < 0.03)),
    "2 s more in 3 %": Link(10, lambda _, drawn: 10 + DRAFT_MS + 2000 * (drawn.random() < 0.03)),
    "5 ms, 200 after 1 s": Link(5, lambda at_ms, _: (5 if at_ms < 1000 else 200) + DRAFT_MS),
    "silent from 1 s on": Link(10, lambda at_ms, _: 10 + DRAFT_MS if at_ms < 1000 else SILENT_MS),
    "silent every other 2 s": Link(10, lambda at_ms, _: 10 + DRAFT_MS if int(at_ms / 2000) % 2 == 0 else SILENT_MS),
    "taken for 1 ms, is 120": Link(1, lambda _, __: 120 + DRAFT_MS),
}
DRAFTERS: dict[str, Callable[[int], float]] = {
    "good": lambda _: 0.8,
    "poor": lambda _: 0.35,
    "always wrong": lambda _: 0.0,
    "always right": lambda _: 1.0,
    "right and wrong by 60 tokens": lambda position: 1.0 if (position // 60) % 2 == 0 else 0.0,
    "good, then wrong": lambda position: 0.85 if position < 150 else 0.0,
}
"""How likely a token is right at a position, those before it in its draft being right."""


@dataclass
class WorldDrafter(RemoteDrafter):
    """A drafter behind a link, given up and asked again as `engine.distributed.remote_drafter` does."""

    link: Link = LINKS["5 ms"]
    right_at: Callable[[int], float] = DRAFTERS["good"]
    drawn: random.Random = field(default_factory=lambda: random.Random(0))
    patience: Patience = field(default_factory=lambda: Patience(PATIENCE_S))
    retry_s: float = FIRST_RETRY_S
    retry_at_ms: float = 0.0

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Draw a draft and when it comes."""
        del bonus
        now_ms = self.clock.ns / 1e6
        if now_ms < self.retry_at_ms:
            return Draft(skipped="the remote drafter was silent")
        tokens, right = [], True
        for place in range(position + 1, position + 1 + count):
            right = right and self.drawn.random() < self.right_at(position)
            tokens.append(token_at(place) + (not right))
        wait_ms, most_ms = self.link.wait(now_ms, self.drawn), 1e3 * self.patience.seconds
        draft = Draft(tuple(tokens), count)
        if wait_ms > most_ms:
            draft, wait_ms = Draft(skipped="the remote drafter was silent"), most_ms
            self.retry_at_ms = now_ms + most_ms + 1e3 * self.retry_s
            self.retry_s = min(2 * self.retry_s, LONGEST_RETRY_S)
        else:
            self.patience.learn(wait_ms / 1e3)
            self.retry_s = FIRST_RETRY_S
        self.answer, self.overtaken = Answer(self.clock, draft, wait_ms), Overtaken(position)
        return self.answer.take(wait_s)


def cases() -> Sequence[str]:
    """Return each kind of target with and without steps that a draft under way makes longer."""
    return [
        f"{target:g} ms a token, {kind}, {slows:g}x beside a draft"
        for target, kind, slows in product(TARGETS_MS, KINDS, SLOWS)
    ]


def run(case: str) -> list[Row]:
    """Decode beside each drafter over each link; return a point each, its speed against plain decoding."""
    named = dict(zip(cases(), product(TARGETS_MS, KINDS, SLOWS), strict=True))
    target_ms, kind, slows = named[case]
    plain_ms = _decoded_ms(target_ms, lambda _: NoDrafter(), FixedDepth(0), 1.0, kind)
    rows = []
    for (link_name, link), (name, right_at) in product(LINKS.items(), DRAFTERS.items()):
        speeds = [
            plain_ms
            / _decoded_ms(
                target_ms,
                lambda clock, seed=seed, link=link, right_at=right_at: WorldDrafter(  # type: ignore[misc]
                    clock, 0.0, link.trip_ms, link=link, right_at=right_at, drawn=random.Random(seed)
                ),
                ControlledDepth(LONGEST),
                slows,
                kind,
            )
            for seed in range(SEEDS)
        ]
        speed = {"speed": round(geometric_mean(speeds), 4), "least": round(min(speeds), 4)}
        rows.append({"link": link_name, "drafter": name, "slows": slows, "silent": link.falls_silent, **speed})
    return rows


def _decoded_ms(target_ms: float, make: Callable[..., object], depth: object, slows: float, kind: str) -> float:
    return decoded_ms(make, depth, TOKENS, slows, KINDS[kind], target_ms)  # type: ignore[arg-type]


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many points are slower than plain decoding, by what slows it."""
    lines, rows = [], rows_of(entries)
    for slows, silent in product(SLOWS, (False, True)):
        speeds = sorted(row["speed"] for row in rows if (row["slows"], row["silent"]) == (slows, silent))
        if speeds:
            below = ", ".join(f"{sum(speed < bound for speed in speeds)} below {bound}" for bound in (0.995, 0.95, 0.9))
            which = "links that fall silent" if silent else "links that answer"
            lines.append(f"{slows:g}x beside a draft, {which}: {len(speeds)} points, least {speeds[0]:.3f}, {below}")
    return lines


STUDY = Study(
    "link-worlds", "Is a drafter elsewhere ever slower than plain decoding, whatever its link does?", cases, run,
    "five minutes", summary,
)  # fmt: skip
