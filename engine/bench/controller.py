"""What the depth controller costs, cold, when drafting does not pay: wall clock against the library's plain decoding.

A world is a drafter and a kind of prompt. In each, the same prompts are decoded to the same forced budget by the
library's own loop and by the engine with a cold controller, in turns. The moments at which tokens reach the host give
the ratio for the whole budget and for every shorter one in the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.bench.turns import Arrivals, Decode, Pulled, take_turns
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.local import LocalDrafter
from engine.drafters.none import NoDrafter
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.ratio import PairedRatio, paired_ratio
from engine.measurement.selection import Prompt
from engine.protocols import Depth, Drafter, DrafterModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft, Features, Step

PREFILL_CHUNK_TOKENS = 512


@dataclass
class SpoiltDrafter(LocalDrafter):
    """Pays for every proposal of the drafter inside and proposes other tokens after position ``since``."""

    inside: Drafter
    vocab_size: int
    since: int

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Propose what the drafter inside proposes, each id moved by one from ``since`` on."""
        draft = self.inside.ask(bonus, position, count, wait_s)
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

    def expect(self, new_tokens: int) -> None:
        """Let the drafter inside make ready."""
        self.inside.expect(new_tokens)

    def rewind(self, length: int) -> int:
        """Take the drafter inside back."""
        return self.inside.rewind(length)

    def close(self) -> None:
        """Close the drafter inside."""
        self.inside.close()

    def measured_bytes(self) -> int:
        """Return the bytes of the drafter inside."""
        return self.inside.measured_bytes()

    @property
    def forwards(self) -> int:
        """Return the forwards of the drafter inside."""
        return self.inside.forwards


@dataclass(frozen=True)
class DrafterWorld:
    """A drafter that is right until output token ``wrong_from`` (None: for ever), over prompts of one set.

    Without ``drafts`` there is none: what the engine's own plain loop takes, before any controller.
    """

    name: str
    prompts: Sequence[Prompt]
    wrong_from: int | None
    drafts: bool = True

    def drafter(self, model: DrafterModel, vocab_size: int, prompt_tokens: int) -> Drafter:
        """Start the drafter of one sequence."""
        if not self.drafts:
            return NoDrafter()
        if self.wrong_from is None:
            return model.open()
        return SpoiltDrafter(model.open(), vocab_size, prompt_tokens + self.wrong_from - 1)

    def depth(self, longest: int) -> Depth:
        """Return the policy: a cold controller where there is something to control."""
        return ControlledDepth(longest) if self.drafts else FixedDepth(0)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both decodes of a prompt. ``identical`` says whether their tokens were the same."""

    world: str
    prompt_id: str
    plain: Arrivals
    controlled: Arrivals
    identical: bool
    drafted_steps: int
    shadow_drafts: int

    def at(self, budget_tokens: int) -> tuple[int, float, float]:
        """Return how many tokens the controlled decode had when it first reached a budget, and both times to that."""
        have, controlled_s = self.controlled.until(budget_tokens)
        return have, self.plain.until(have)[1], controlled_s

    def row(self, budgets: Sequence[int]) -> dict[str, Any]:
        """Return the pair as JSON values, with its times at the budgets."""
        names = ("tokens", "plain_s", "controlled_s")
        times = {str(tokens): dict(zip(names, self.at(tokens), strict=True)) for tokens in budgets}
        return {name: getattr(self, name) for name in _PLAIN_FIELDS} | {"times": times}


_PLAIN_FIELDS = ("world", "prompt_id", "identical", "drafted_steps", "shadow_drafts")


@dataclass(frozen=True)
class ControllerTrial:
    """Measures worlds; ``seed`` draws which of the two takes each turn first."""

    engine: Engine
    budget_tokens: int
    seed: str
    longest: int
    pairs: list[Pair] = field(default_factory=list)

    def run(self, worlds: Sequence[DrafterWorld], heard: Callable[[Pair], None] = lambda _: None) -> list[Pair]:
        """Decode every prompt of every world twice, prompts of the worlds in turn; the first turn is a warm-up."""
        chooser = random.Random(f"{self.seed}/controller")  # noqa: S311 - a reproducible order, not a secret
        turns = max(len(world.prompts) for world in worlds)
        for turn in range(-1, turns):
            for world in worlds:
                if turn >= len(world.prompts):
                    continue
                pair = self._pair(world, world.prompts[turn], chooser)
                if turn >= 0:
                    self.pairs.append(pair)
                    heard(pair)
        return self.pairs

    def _pair(self, world: DrafterWorld, prompt: Prompt, chooser: random.Random) -> Pair:
        clock, draft_counts = self.engine.backend.clock, DraftCounts()
        plain = Decode(Pulled(DraftCounts().count(self._plain(prompt)), clock), clock)
        controlled = Decode(Pulled(draft_counts.count(self._controlled(world, prompt)), clock), clock)
        take_turns([plain, controlled], chooser)
        identical = plain.tokens == controlled.tokens
        counts = draft_counts.drafted_steps, draft_counts.shadow_drafts
        return Pair(world.name, prompt.id, plain.arrivals, controlled.arrivals, identical, *counts)

    def _plain(self, prompt: Prompt) -> Iterator[Step]:
        return self.engine.native.decode(prompt.ids, Stopping(self.budget_tokens), PREFILL_CHUNK_TOKENS)

    def _controlled(self, world: DrafterWorld, prompt: Prompt) -> Iterator[Step]:
        engine = self.engine
        parts = Parts(
            engine.target.open(engine.drafter.capture if world.drafts else (), CacheLayout.NATIVE),
            world.drafter(engine.drafter, engine.target.info.vocab_size, len(prompt.ids)),
            engine.accept,
            world.depth(self.longest),
            engine.backend.clock,
            engine.resident,
        )
        return speculative(parts, prompt.ids, Stopping(self.budget_tokens), PREFILL_CHUNK_TOKENS)


@dataclass(slots=True)
class DraftCounts:
    """How many steps of a decode verified a draft, and how many shadow drafts it had."""

    drafted_steps: int = 0
    shadow_drafts: int = 0

    def count(self, steps: Iterator[Step]) -> Generator[tuple[int, ...]]:
        """Pass on the tokens of each step."""
        for step in steps:
            self.drafted_steps += step.drafted > 0
            self.shadow_drafts += step.shadowed > 0
            yield step.tokens


def curve(pairs: Sequence[Pair], budgets: Sequence[int]) -> dict[int, PairedRatio]:
    """Return plain time over controlled time at each budget, paired by prompt: 1 is as fast, below 1 slower.

    Both are taken at the number of tokens the controlled decode had when it first reached the budget.

    Raises:
        UsageError: If a pair's tokens differ: then the times are of different work.
    """
    different = [pair.prompt_id for pair in pairs if not pair.identical]
    if different:
        raise UsageError(f"{len(different)} prompts were decoded to other tokens, first {different[0]}; no ratio")
    ratios = {}
    for budget in budgets:
        taken = [pair.at(budget) for pair in pairs]
        ratios[budget] = paired_ratio([plain for _, plain, _ in taken], [controlled for *_, controlled in taken])
    return ratios
