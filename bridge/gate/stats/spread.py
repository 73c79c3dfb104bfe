"""How much identical work differed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def robust_log_spread(first: Sequence[float], second: Sequence[float]) -> float:
    """Return 1.4826 times the median absolute deviation of log(first / second).

    Raises:
        ValueError: no pair, or a value that is not positive.
    """
    logs = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    if not logs:
        raise ValueError("no pair")
    middle = statistics.median(logs)
    return 1.4826 * statistics.median(abs(value - middle) for value in logs)


def largest_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest max/min within a pair of identical work."""
    return max(max(a, b) / min(a, b) for a, b in zip(first, second, strict=True))
