"""A straight line through values in their order: did the machine get slower or faster while it was measured?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.launches.distributions import t_cdf, t_quantile


@dataclass(frozen=True)
class Trend:
    """Slope per unit of x with its standard error and degrees of freedom."""

    slope: float
    error: float
    df: int

    @property
    def p_value(self) -> float:
        """Two-sided p-value of no slope."""
        if self.error == 0.0:
            return 1.0 if self.slope == 0.0 else 0.0
        return 2.0 * (1.0 - t_cdf(abs(self.slope) / self.error, self.df))

    def upper(self, confidence: float) -> float:
        """Return the one-sided upper bound of the slope."""
        return self.slope + t_quantile(confidence, self.df) * self.error


def line(x: Sequence[float], y: Sequence[float]) -> Trend:
    """Return the least-squares line.

    Raises:
        ValueError: fewer than three points, or all at one x.
    """
    n = len(x)
    if n < 3 or n != len(y):
        raise ValueError(f"got {n} and {len(y)} values, expected the same number and at least 3")
    mean_x, mean_y = math.fsum(x) / n, math.fsum(y) / n
    spread = math.fsum((value - mean_x) ** 2 for value in x)
    if spread <= 0.0:
        raise ValueError("all points at one x")
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = math.fsum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return Trend(slope, math.sqrt(rest / (n - 2) / spread), n - 2)
