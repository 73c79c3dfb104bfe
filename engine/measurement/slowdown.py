"""Whether one pass of a comparison of two commits says that the head is slower: the question a second pass confirms.

Ratio of total times over prompts, delta-method standard error of its logarithm, t with n - 1 (the gate's own estimate,
computed here a second time because the engine knows no gate; a test holds the two together).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

CONFIDENCE = 0.95


def upper_bound(base_s: Sequence[float], head_s: Sequence[float]) -> float:
    """Return the upper end of the 95 % interval of base over head time, unit by unit; below 1 the head is slower.

    Raises:
        ValueError: fewer than two units, different lengths, or a total that is not positive.
    """
    n = len(base_s)
    if n < 2 or n != len(head_s) or not (sum(base_s) > 0 and sum(head_s) > 0):
        raise ValueError(f"got {n} and {len(head_s)} times, expected the same number, at least 2, all positive")
    top, bottom = math.fsum(base_s) / n, math.fsum(head_s) / n
    parts = [x / top - y / bottom for x, y in zip(base_s, head_s, strict=True)]
    error = math.sqrt(math.fsum(part * part for part in parts) / (n - 1) / n)
    return top / bottom * math.exp(t_quantile(0.5 + CONFIDENCE / 2, n - 1) * error)


def is_slower(base_s: Mapping[str, float], head_s: Mapping[str, float], margin: float) -> bool:
    """Say whether the head is slower by more than a margin, over the prompts both have."""
    common = [prompt for prompt in base_s if prompt in head_s]
    return upper_bound([base_s[p] for p in common], [head_s[p] for p in common]) < 1.0 - margin


def t_quantile(p: float, df: int) -> float:
    """Return the p-quantile (p > 0.5) of Student's t with a whole number of degrees of freedom, to 1e-10."""
    low, high = 0.0, 1.0
    while _t_cdf(high, df) < p:
        high *= 2
    while high - low > 1e-11 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, df: int) -> float:
    """Return Student's distribution function in closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(df))
    cosine = math.cos(angle)
    if df % 2:
        term, total = cosine, (cosine if df > 1 else 0.0)
        for k in range(3, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        share = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        term = total = 1.0
        for k in range(2, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        share = math.sin(angle) * total
    return 0.5 + share / 2
