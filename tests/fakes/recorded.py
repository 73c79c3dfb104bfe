"""A target's answer with what a drafter proposed at each of its positions, recorded once, to run policies on.

Prompt lookup runs as it does beside a model, on the recorded tokens. Costs are given by the world: in units of a plain
step, as measured for the packaged pair on a CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.decoding.lookups import LOOKED_UP
from engine.drafters.ngram import NgramDrafter, NgramModel
from engine.protocols import Depth
from engine.types import Choice, Decision, Match

DRAFT_S = 0.55
"""Seconds of one block of the drafter, a plain step taking 1."""


def verify_s(rows: int) -> float:
    """Return the seconds of a forward over ``rows`` drafted rows and the bonus."""
    return 1.0 + 0.065 * rows


@dataclass
class Recorded:
    """One sequence to replay; ``proposed[i]`` is the drafter's block behind answer token i."""

    prompt: Sequence[int]
    answer: Sequence[int]
    proposed: Sequence[Sequence[int]]
    draft_s: float = DRAFT_S
    verify_s: Callable[[int], float] = verify_s
    looking: NgramDrafter = field(default_factory=lambda: NgramModel(max_tokens=32).open())

    def __post_init__(self) -> None:
        self.looking.observe(0, tuple(self.prompt), None)

    def lookup(self, position: int) -> Match | None:
        """Return the match at an answer position; what is committed before it is shown to the index first."""
        shown = len(self.prompt) + position
        indexed = len(self.looking.tokens)
        if shown > indexed:
            self.looking.observe(indexed, tuple(self.answer[indexed - len(self.prompt) : position]), None)
        return self.looking.lookup(self.answer[position])

    def block(self, position: int, choice: Choice, looked_up: str) -> tuple[int, ...]:
        """Return what is drafted behind an answer position."""
        match = self.lookup(position)
        matched = match.tokens if match is not None else ()
        if choice.source == looked_up:
            return matched[: choice.count]
        block = tuple(self.proposed[position][: choice.count])
        agrees = choice.extended > choice.count and matched[: len(block)] == block
        return matched[: choice.extended] if agrees else block

    def accepted(self, position: int, block: Sequence[int]) -> int:
        """Return how many tokens of a block are the answer's."""
        right = self.answer[position + 1 :]
        return next(
            (place for place, token in enumerate(block) if place >= len(right) or right[place] != token), len(block)
        )

    def cost_s(self, choice: Choice, block: Sequence[int], looked_up: str) -> float:
        """Return the seconds of a step with a block."""
        drafted = choice.count > 0 and choice.source != looked_up
        return self.verify_s(len(block)) + (self.draft_s if drafted else 0.0)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds for ``tokens`` tokens, a plain step taking 1, and whose drafts how many steps verified."""

    tokens: int
    time_s: float
    steps: dict[str, int]


def run(policy: Depth, recorded: Recorded, tokens: int, looked_up: str = LOOKED_UP) -> Spent:
    """Let ``policy`` decode ``tokens`` tokens of the answer, the first of them known."""
    position, last, time_s = 0, tokens - 1, 0.0
    policy.begin(lambda _: None)
    steps: Counter[str] = Counter()

    def step(choice: Choice, extra_s: float = 0.0) -> None:
        nonlocal position, time_s
        block = recorded.block(position, choice, looked_up) if choice.count else ()
        accepted = min(recorded.accepted(position, block), last - position - 1)
        elapsed_s = extra_s + recorded.cost_s(choice, block, looked_up)
        tokens = tuple(recorded.answer[position + 1 : position + accepted + 2])
        policy.record(position, len(block), Decision(tokens, accepted), elapsed_s)
        steps[(choice.source or "drafter") if block else "plain"] += 1
        time_s += elapsed_s
        position += accepted + 1

    def right(begun: int, compared: int) -> int:
        return recorded.accepted(begun, recorded.proposed[begun][:compared])

    while position < last:
        choice = policy.choose(position, last - position, lambda: recorded.lookup(position))
        if choice.count:
            step(choice)
            continue
        pause, begun = policy.park(position), position
        length = min(pause.tokens, last - position)
        shadow = min(pause.shadow, length)
        while position - begun < length:
            step(Choice(0), recorded.draft_s if shadow and position == begun else 0.0)
            decoded = position - begun
            ended = shadow > 0 and decoded == shadow and policy.shadowed(shadow, right(begun, shadow))
            if not ended and position - begun < length:
                ended = policy.interrupts(position, last - position, lambda: recorded.lookup(position))
                if ended and decoded < shadow:
                    policy.shadowed(decoded, right(begun, decoded))
            if ended:
                # The forward that was queued ahead is read.
                if position - begun < length:
                    step(Choice(0))
                break
    return Spent(tokens, time_s, dict(steps))
