"""Bounds on success rates: Clopper and Pearson for one arm, Tango's score bound for paired arms; the sign test.

Sources: Clopper & Pearson, Biometrika 26 (1934); Tango, Statistics in Medicine 17 (1998), 891-908.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from bridge.launches.distributions import beta_quantile

REFERENCE_LEAST: Final = 0.9
"""Share of the prompts that the reference finds at least: below it there is little to preserve."""


def preserved(found: int, n: int, lower: float, margin: float) -> bool:
    """Say whether a paired difference shows that recall was preserved.

    Args:
        found: units that the reference got right.
        n: all units.
        lower: the difference's lower bound.
        margin: how far below the reference still counts as preserved, a share.
    """
    return n > 0 and found >= REFERENCE_LEAST * n and lower > -margin


def rate_lower(successes: int, n: int, confidence: float) -> float:
    """Return the exact one-sided lower bound of a success rate."""
    _check(successes, n)
    return 0.0 if successes == 0 else beta_quantile(1.0 - confidence, successes, n - successes + 1)


def rate_upper(successes: int, n: int, confidence: float) -> float:
    """Return the exact one-sided upper bound of a success rate."""
    _check(successes, n)
    return 1.0 if successes == n else beta_quantile(confidence, successes + 1, n - successes)


def paired_difference_lower(gained: int, lost: int, n: int, confidence: float) -> float:
    """Return the one-sided lower score bound of (gained - lost) / n.

    Args:
        gained: units only the candidate got right.
        lost: units only the baseline got right.
        n: all units.
        confidence: one-sided.
    """
    if min(gained, lost) < 0 or gained + lost > n or n < 1:
        raise ValueError(f"got {gained} gained and {lost} lost of {n}")
    z = NormalDist().inv_cdf(confidence)
    low, high = -1.0 + 1e-12, (gained - lost) / n
    for _ in range(200):
        middle = (low + high) / 2.0
        if _score(gained, lost, n, middle) > z:
            low = middle
        else:
            high = middle
        if high - low < 1e-13:
            break
    return (low + high) / 2.0


def _score(gained: int, lost: int, n: int, difference: float) -> float:
    """Return Tango's statistic for this difference, restricted maximum likelihood variance."""
    a = 2.0 * n
    b = -gained - lost + (2.0 * n - gained + lost) * difference
    c = -lost * difference * (1.0 - difference)
    q = (math.sqrt(max(b * b - 4.0 * a * c, 0.0)) - b) / (2.0 * a)
    variance = n * (2.0 * q + difference * (1.0 - difference))
    distance = gained - lost - n * difference
    if variance <= 0.0:
        return 0.0 if distance == 0.0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def sign_test(values: Sequence[float]) -> float:
    """Return the exact two-sided p-value of a median of 0 (Dixon & Mood, JASA 41, 1946); a 0 is for neither side."""
    n = len(values)
    more = max(sum(value > 0.0 for value in values), sum(value < 0.0 for value in values))
    return min(1.0, 2 * sum(math.comb(n, count) for count in range(more, n + 1)) / (1 << n))


def _check(successes: int, n: int) -> None:
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"got {successes} successes of {n}")
