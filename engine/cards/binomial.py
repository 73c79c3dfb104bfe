"""Exact binomial bounds without a statistics package."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Proportion:
    """`successes` of `trials` with the exact (Clopper-Pearson) two-sided 95 % interval."""

    successes: int
    trials: int
    lower: float
    upper: float


def tail_probability(successes: int, trials: int, share: float) -> float:
    """Return P(X >= successes) for X binomial with `trials` and `share`."""
    terms = (math.comb(trials, k) * share**k * (1.0 - share) ** (trials - k) for k in range(successes, trials + 1))
    return math.fsum(terms)


def _solve(successes: int, trials: int, probability: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if tail_probability(successes, trials, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Proportion:
    """Return the exact interval of a proportion.

    Raises:
        ValueError: When the counts are not 0 <= successes <= trials with trials > 0.
    """
    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"got {successes} of {trials}, expected 0 <= successes <= trials and trials > 0")
    outside = (1.0 - confidence) / 2
    lower = 0.0 if successes == 0 else _solve(successes, trials, outside)
    upper = 1.0 if successes == trials else _solve(successes + 1, trials, 1.0 - outside)
    return Proportion(successes, trials, lower, upper)
