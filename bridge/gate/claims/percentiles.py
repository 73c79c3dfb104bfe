"""Percentiles of what a run saw many times, with an interval over its launches.

Knows numbers, not what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bridge.gate.claims import CONFIDENCE

SAMPLES_LEAST: Final = {0.5: 1, 0.9: 36, 0.99: 368}
"""Fewer answers have no such percentile: with 36 the largest lies above the 90th in 97.7 %, with 368 above the 99th."""


def median_interval(values: Sequence[float], least: float = CONFIDENCE) -> tuple[float, float, float] | None:
    """Return the narrowest pair of order statistics that covers the median in this share, and in how much it does.

    Distribution-free: the count of values below the median is binomial (Thompson, Ann. Math. Stat. 7, 1936).

    Args:
        values: sorted.
        least: how often it is to cover at least.
    """
    n = len(values)
    best: tuple[float, float, float] | None = None
    below = 0.0
    for drop in range(n // 2):
        below += math.comb(n, drop) / 2.0**n
        confidence = 1.0 - 2.0 * below
        if confidence < least:
            break
        best = (values[drop], values[n - 1 - drop], confidence)
    return best


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value below or at which so large a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
