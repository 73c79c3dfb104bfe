"""Speculative sampling: its settings, its draws, and what is committed of the rows that a device drew.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1: accept draft token x with probability min(1, p(x) / q(x)); at the
first rejection draw from the normalised positive part of p - q; after a fully accepted draft draw from p. The marginal
distribution of every committed token is p, whatever q is. A backend draws by the inverse cumulative distribution and
agrees token by token with the plain floats of ``tests.fakes.rejection``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import UsageError
from engine.types import Decision, Proposal

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


def possible(ids: Sequence[int], probs: Sequence[float]) -> Proposal:
    """Return the ids that have a probability, with it."""
    pairs = [(token, prob) for token, prob in zip(ids, probs, strict=True) if prob > 0.0]
    return tuple(token for token, _ in pairs), tuple(prob for _, prob in pairs)


def padded(proposals: Sequence[Proposal]) -> tuple[list[list[int]], list[list[float]]]:
    """Return ids and probabilities in rows of one length: shorter ones say their first id again."""
    most = max(len(ids) for ids, _ in proposals)
    ids = [[*row, *[row[0]] * (most - len(row))] for row, _ in proposals]
    return ids, [[*row, *[row[0]] * (most - len(row))] for _, row in proposals]


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
