"""What the depth controller costs, cold, when drafting does not pay: wall clock against the library's plain decoding.

A world is a drafter and a kind of prompt. In each, the same prompts are decoded to the same forced budget by the
library's own loop and by the engine with a cold controller, in a drawn order; the moments at which tokens reach the
host give the ratio for the whole budget and for every shorter one in the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.benchmarks.ratio import Ratio, paired_ratio
from engine.decoding.controller import ControlledDepth
from engine.decoding.speculative import Parts, speculative
from engine.decoding.stopping import Stopping
from engine.errors import UsageError
from engine.evaluation.selection import Prompt
from engine.loading import Engine
from engine.protocols import Clock, Drafter, DrafterModel
from engine.types import CacheLayout, Draft, Features, Step

PREFILL_CHUNK_TOKENS = 512


@dataclass
class SpoiltDrafter:
    """Pays for every proposal of the drafter inside and proposes other tokens after position ``since``."""

    inside: Drafter
    vocab_size: int
    since: int

    def propose(self, bonus: int, position: int, count: int) -> Draft:
        """Propose what the drafter inside proposes, each id moved by one from ``since`` on."""
        draft = self.inside.propose(bonus, position, count)
        if position < self.since or draft.count == 0:
            return draft
        if isinstance(draft.tokens, tuple):
            moved: Any = tuple((token + 1) % self.vocab_size for token in draft.tokens)
        else:
            moved = (draft.tokens + 1) % self.vocab_size
        return Draft(moved, draft.count, draft.probs, draft.skipped)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Pass on what was committed."""
        self.inside.observe(start, tokens, features)

    def measured_bytes(self) -> int:
        """Return the bytes of the drafter inside."""
        return self.inside.measured_bytes()

    @property
    def forwards(self) -> int:
        """Return the forwards of the drafter inside."""
        return self.inside.forwards


@dataclass(frozen=True)
class World:
    """A drafter that is right until output token ``wrong_from`` (None: for ever), over prompts of one set."""

    name: str
    prompts: Sequence[Prompt]
    wrong_from: int | None

    def drafter(self, model: DrafterModel, vocab_size: int, prompt_tokens: int) -> Drafter:
        """Start the drafter of one sequence."""
        if self.wrong_from is None:
            return model.open()
        return SpoiltDrafter(model.open(), vocab_size, prompt_tokens + self.wrong_from - 1)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One decode: seconds from the first token to the moment when ``tokens[i]`` tokens were there."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    def until(self, tokens: int) -> tuple[int, float]:
        """Return the first (tokens, seconds) at which at least ``tokens`` were there."""
        return next((have, at) for have, at in zip(self.tokens, self.seconds, strict=True) if have >= tokens)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both decodes of a prompt. ``identical`` says whether their tokens were the same."""

    world: str
    prompt_id: str
    plain: Arrivals
    controlled: Arrivals
    identical: bool
    drafted_steps: int


@dataclass(frozen=True)
class Trial:
    """Measures worlds; ``seed`` draws which of the two decodes a prompt first."""

    engine: Engine
    budget_tokens: int
    seed: str
    longest: int
    pairs: list[Pair] = field(default_factory=list)

    def run(self, worlds: Sequence[World], heard: Callable[[Pair], None] = lambda _: None) -> list[Pair]:
        """Decode every prompt of every world twice, prompts of the worlds in turn; the first turn is a warm-up."""
        chooser = random.Random(f"{self.seed}/controller")  # noqa: S311 - a reproducible order, not a secret
        turns = max(len(world.prompts) for world in worlds)
        for turn in range(-1, turns):
            for world in worlds:
                if turn >= len(world.prompts):
                    continue
                pair = self._pair(world, world.prompts[turn], plain_first=chooser.random() < 0.5)
                if turn >= 0:
                    self.pairs.append(pair)
                    heard(pair)
        return self.pairs

    def _pair(self, world: World, prompt: Prompt, *, plain_first: bool) -> Pair:
        ways = {"plain": lambda: self._plain(prompt), "controlled": lambda: self._controlled(world, prompt)}
        names = list(ways) if plain_first else list(reversed(ways))
        found = {name: ways[name]() for name in names}
        (plain_ids, plain, _), (ids, controlled, drafted) = found["plain"], found["controlled"]
        return Pair(world.name, prompt.id, plain, controlled, plain_ids == ids, drafted)

    def _plain(self, prompt: Prompt) -> tuple[tuple[int, ...], Arrivals, int]:
        steps = self.engine.native.decode(prompt.ids, Stopping(self.budget_tokens), PREFILL_CHUNK_TOKENS)
        return arrivals(steps, self.engine.backend.clock)

    def _controlled(self, world: World, prompt: Prompt) -> tuple[tuple[int, ...], Arrivals, int]:
        engine = self.engine
        parts = Parts(
            engine.target.open(engine.drafter.capture, CacheLayout.NATIVE),
            world.drafter(engine.drafter, engine.target.info.vocab_size, len(prompt.ids)),
            engine.accept,
            ControlledDepth(self.longest),
            engine.backend.clock,
        )
        steps = speculative(parts, prompt.ids, Stopping(self.budget_tokens), PREFILL_CHUNK_TOKENS)
        return arrivals(steps, engine.backend.clock)


def arrivals(steps: Iterable[Step], clock: Clock) -> tuple[tuple[int, ...], Arrivals, int]:
    """Run a decode; return its tokens, when they arrived, and how many steps drafted."""
    clock.now_ns()
    tokens: list[int] = []
    counts: list[int] = []
    moments_ns: list[int] = []
    drafted = 0
    for step in steps:
        moments_ns.append(clock.host_ns())
        tokens.extend(step.tokens)
        counts.append(len(tokens))
        drafted += step.drafted > 0
    seconds = tuple((moment - moments_ns[0]) / 1e9 for moment in moments_ns)
    return tuple(tokens), Arrivals(tuple(counts), seconds), drafted


def curve(pairs: Sequence[Pair], budgets: Sequence[int]) -> dict[int, Ratio]:
    """Return plain time over controlled time at each budget, paired by prompt: 1 is as fast, below 1 slower.

    Both are taken at the number of tokens the controlled decode had when it first reached the budget.

    Raises:
        UsageError: If a pair's tokens differ: then the times are of different work.
    """
    different = [pair.prompt_id for pair in pairs if not pair.identical]
    if different:
        raise UsageError(f"{len(different)} prompts were decoded to other tokens, first {different[0]}; no ratio")
    found = {}
    for budget in budgets:
        taken = [pair.controlled.until(budget) for pair in pairs]
        plain = [pair.plain.until(have)[1] for pair, (have, _) in zip(pairs, taken, strict=True)]
        found[budget] = paired_ratio(plain, [seconds for _, seconds in taken])
    return found
