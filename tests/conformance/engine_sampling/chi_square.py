"""Goodness of fit with a stated power: how many draws a test needs to see a total variation, and Holm's correction."""

from __future__ import annotations

import numpy as np
import scipy

ALPHA = 0.001
"""Chance that a right implementation fails the whole family."""


def draws_needed(categories: int, total_variation: float, tests: int, power: float = 0.9) -> int:
    """Return the sample size at which any deviation of that total variation is found, however it is spread.

    The noncentrality of the statistic is n * sum(d^2 / p) >= n * (2 TV)^2 by the Cauchy-Schwarz inequality, and the
    strictest level that Holm's procedure asks of one test is ALPHA / tests.
    """
    freedom = categories - 1
    critical = scipy.stats.chi2.isf(ALPHA / tests, freedom)
    low, high = 1.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if scipy.stats.ncx2.sf(critical, freedom, middle) >= power else (middle, high)
    return int(np.ceil(high / (2 * total_variation) ** 2))


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """Return the chance of a fit this bad; draws where nothing is expected fail at once."""
    if counts[expected == 0].any():
        return 0.0
    possible = expected > 0
    if possible.sum() == 1:
        return 1.0
    return float(
        scipy.stats.chisquare(counts[possible], expected[possible] / expected[possible].sum() * counts.sum()).pvalue
    )


def rejected(p_values: dict[str, float]) -> list[str]:
    """Return the names Holm's step-down procedure rejects at ALPHA."""
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    names = []
    for index, (name, value) in enumerate(ordered):
        if value > ALPHA / (len(ordered) - index):
            break
        names.append(name)
    return names
