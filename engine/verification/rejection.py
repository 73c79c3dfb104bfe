"""Speculative sampling in plain floats: the reference that backends are compared with.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1: accept draft token x with probability min(1, p(x) / q(x)); at the
first rejection draw from the normalised positive part of p - q; after a fully accepted draft draw from p. The marginal
distribution of every committed token is p, whatever q is. Uniform draws are arguments, so the rule is a function; a
backend draws by the same inverse cumulative distribution and therefore agrees with this reference token by token.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import UsageError
from engine.types import Decision

Row = Sequence[float]
COLDEST = 1e-4
"""Below it, logits over the temperature leave the range in which fp32 tells them apart: that is greedy decoding."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample: ``temperature`` >= 1e-4, ``top_k`` (0 keeps all ids), ``top_p`` the mass to keep, ``seed``."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            UsageError: If a value cannot describe a distribution.
        """
        if not (math.isfinite(self.temperature) and self.temperature >= COLDEST):
            raise UsageError(
                f"temperature is {self.temperature}; expected a number of at least {COLDEST}, or 0 for greedy decoding"
            )
        if self.top_k < 0 or not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_k is {self.top_k} and top_p is {self.top_p}; expected top_k >= 0 and 0 < top_p <= 1")


class Uniforms:
    """The draws in [0, 1) of one sequence; ``stream`` keeps a drafter's draws apart from its target's."""

    def __init__(self, seed: int, stream: str) -> None:
        self._random = random.Random(f"{seed}/{stream}")  # noqa: S311 - reproducible draws, not secrets

    def take(self, count: int) -> list[float]:
        """Return the next ``count`` draws."""
        return [self._random.random() for _ in range(count)]


def shape(logits: Row, temperature: float, top_k: int = 0, top_p: float = 1.0) -> list[float]:
    """Turn logits into the distribution that is sampled from.

    Order: temperature, then top-k, then top-p over what is left, then renormalise. The smallest set of most likely ids
    whose mass reaches ``top_p`` is kept, so at least one id survives.

    Args:
        logits: One row, ``[vocabulary]``.
        temperature: > 0; greedy decoding is another rule, not a limit of this one.
        top_k: Keep the k most likely ids; 0 keeps all.
        top_p: Keep the smallest set with at least this mass.
    """
    peak = max(logits)
    weights = [math.exp((value - peak) / temperature) for value in logits]
    order = sorted(range(len(weights)), key=lambda index: (-weights[index], index))
    if top_k > 0:
        order = order[:top_k]
    total = math.fsum(weights[index] for index in order)
    kept: list[int] = []
    mass = 0.0
    for index in order:
        kept.append(index)
        mass += weights[index] / total
        if mass >= top_p:
            break
    norm = math.fsum(weights[index] for index in kept)
    probabilities = [0.0] * len(weights)
    for index in kept:
        probabilities[index] = weights[index] / norm
    return probabilities


def draw(probabilities: Row, uniform: float) -> int:
    """Return the id whose cumulative interval contains ``uniform`` in [0, 1)."""
    mass = 0.0
    last = 0
    for index, value in enumerate(probabilities):
        if value > 0.0:
            last = index
            mass += value
            if uniform < mass:
                return index
    return last


def residual(target: Row, drafter: Row) -> list[float]:
    """Return the normalised positive part of target - drafter, or ``target`` when nothing is left of it."""
    positive = [max(p - q, 0.0) for p, q in zip(target, drafter, strict=True)]
    total = math.fsum(positive)
    return [value / total for value in positive] if total > 0.0 else list(target)


def decide(draft: Sequence[int], target: Sequence[Row], drafter: Sequence[Row], uniforms: Sequence[float]) -> Decision:
    """Apply the rule to one block.

    Args:
        draft: n proposed ids; id j was drawn from ``drafter[j]``.
        target: n + 1 target distributions.
        drafter: n drafter distributions; a deterministic proposal is a one-hot row.
        uniforms: n + 1 draws in [0, 1): one test per draft token, then one for the final draw.
    """
    for row, token in enumerate(draft):
        p, q = target[row][token], drafter[row][token]
        if uniforms[row] * q < p:
            continue
        recovered = draw(residual(target[row], drafter[row]), uniforms[-1])
        return Decision(tokens=(*draft[:row], recovered), accepted=row)
    return Decision(tokens=(*draft, draw(target[len(draft)], uniforms[-1])), accepted=len(draft))


def settle(draft: Sequence[int], passed: Sequence[bool], recovered: Sequence[int], usable: Sequence[bool]) -> Decision:
    """Turn what a device drew for every row into the one outcome that counts.

    Args:
        draft: n proposed ids.
        passed: Whether each draft token passed its test.
        recovered: n + 1 ids: what to commit if the draft stops before row j; the last one follows a whole draft.
        usable: Whether each of the n + 1 target rows is finite; the draft ends before an unusable one.

    Returns:
        The committed tokens; none, with a ``guard``, when row 0 itself is unusable.
    """
    accepted = 0
    while accepted < len(draft) and usable[accepted] and passed[accepted]:
        accepted += 1
    guard = None
    if not usable[accepted]:
        guard = "non-finite logits"
        # The last accepted token came from a sound row, so it is committed and becomes the next bonus itself.
        return Decision(tokens=tuple(draft[:accepted]), accepted=max(0, accepted - 1), guard=guard)
    return Decision(tokens=(*draft[:accepted], recovered[accepted]), accepted=accepted, guard=guard)
