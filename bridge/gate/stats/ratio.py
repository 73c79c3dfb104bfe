"""The ratio of two totals over paired units: delta-method standard error of its logarithm, t with n - 1.

Percentile bootstrap at n = 5 ... 30 errs 4 to 11 % one-sided where 2.5 % is meant; this does not (simulated on recorded
noise of a shared machine). Knows units and numbers, not what they measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.launches.distributions import t_cdf, t_quantile
from bridge.launches.estimate import bounds_of


@dataclass(frozen=True)
class Ratio:
    """An estimated ratio: its logarithm, that logarithm's standard error and degrees of freedom."""

    log_ratio: float
    error: float
    df: int

    @property
    def value(self) -> float:
        """The ratio."""
        return math.exp(self.log_ratio)

    @property
    def n(self) -> int:
        """Units behind it."""
        return self.df + 1

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the two-sided interval of the ratio."""
        return bounds_of(self.log_ratio, self.half_width(confidence))

    def half_width(self, confidence: float) -> float:
        """Return half the two-sided interval's width on the log scale."""
        return t_quantile(0.5 + confidence / 2.0, self.df) * self.error

    def lower(self, confidence: float) -> float:
        """Return the one-sided lower bound of the ratio."""
        return math.exp(self.log_ratio - t_quantile(confidence, self.df) * self.error)

    def p_value(self, ratio: float = 1.0) -> float:
        """Return the two-sided p-value of the hypothesis that the ratio is this one."""
        distance = abs(self.log_ratio - math.log(ratio))
        if self.error == 0.0:
            return 1.0 if distance == 0.0 else 0.0
        return 2.0 * (1.0 - t_cdf(distance / self.error, self.df))


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Return the ratio of totals of two lists that belong together unit by unit.

    Raises:
        ValueError: fewer than two units, different lengths, or a total that is not positive.
    """
    n = len(numerator)
    if n < 2 or n != len(denominator):
        raise ValueError(f"got {n} and {len(denominator)} units, expected the same number and at least 2")
    top, bottom = math.fsum(numerator) / n, math.fsum(denominator) / n
    if not (top > 0.0 and bottom > 0.0):
        raise ValueError("a total is not positive")
    parts = [x / top - y / bottom for x, y in zip(numerator, denominator, strict=True)]
    variance = math.fsum(part * part for part in parts) / (n - 1)  # the parts sum to zero by construction
    return Ratio(math.log(top / bottom), math.sqrt(variance / n), n - 1)


def known_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Return `paired_ratio`, None with fewer than two units or a total that is not positive."""
    try:
        return paired_ratio(numerators, denominators)
    except ValueError:
        return None


def paired_double_ratio(
    first: tuple[Sequence[float], Sequence[float]], second: tuple[Sequence[float], Sequence[float]]
) -> Ratio:
    """Return one ratio of totals over another, unit by unit: what two runs share, e.g. the machine's speed, cancels.

    Args:
        first: numerators and denominators of the upper ratio.
        second: those of the lower one, of the same units in the same order.

    Raises:
        ValueError: fewer than two units, different lengths, or a total that is not positive.
    """
    lists = (*first, *second)
    n = len(lists[0])
    if n < 2 or any(len(values) != n for values in lists):
        raise ValueError(f"got {[len(values) for values in lists]} units, expected the same number and at least 2")
    means = [math.fsum(values) / n for values in lists]
    if not all(mean > 0.0 for mean in means):
        raise ValueError("a total is not positive")
    scaled = [[value / mean for value in values] for values, mean in zip(lists, means, strict=True)]
    parts = [a - b - c + d for a, b, c, d in zip(*scaled, strict=True)]
    variance = math.fsum(part * part for part in parts) / (n - 1)  # the parts sum to zero by construction
    log_ratio = math.log(means[0] / means[1]) - math.log(means[2] / means[3])
    return Ratio(log_ratio, math.sqrt(variance / n), n - 1)
