"""Percentiles of what a run saw many times, with an interval over its launches.

Knows numbers, not what was measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.gate.claims import CONFIDENCE
from bridge.launches import figures

P50: Final = "p50"
SAMPLES_LEAST: Final = {0.5: 1, 0.9: 36, 0.99: 368}
"""Fewer samples have no such percentile: with 36 the largest lies above the 90th in 97.7 %, with 368 above the 99th."""


@dataclass(frozen=True)
class MedianLaunch:
    """A number of the median launch: what is measured within one launch is not independent.

    Attributes:
        bounds: low, high and how often they cover the median of launches; None with too few launches.
    """

    value: float
    bounds: tuple[float, float, float] | None

    @classmethod
    def of(cls, values: Sequence[float]) -> MedianLaunch:
        """Return it of a number a launch.

        Raises:
            statistics.StatisticsError: there is none.
        """
        return cls(statistics.median(values), median_interval(sorted(values)))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bounds alone."""
        return None if self.bounds is None else self.bounds[:2]

    @property
    def confidence(self) -> float | None:
        """How often the bounds cover."""
        return None if self.bounds is None else self.bounds[2]

    def covering(self, other: MedianLaunch) -> MedianLaunch:
        """Return it with bounds that cover another's too, at the lesser confidence; with none where one has none."""
        if self.bounds is None or other.bounds is None:
            return MedianLaunch(self.value, None)
        (low, high, share), (other_low, other_high, other_share) = self.bounds, other.bounds
        return MedianLaunch(self.value, (min(low, other_low), max(high, other_high), min(share, other_share)))

    def text(self, unit: str) -> str:
        """Return it with its interval, for people."""
        return str(figures.shown(self.value, unit, self.interval))


def percentiles(launches: Sequence[Sequence[float]]) -> dict[str, MedianLaunch]:
    """Return by name the percentiles that so many samples have, each that of the median launch.

    Args:
        launches: samples of each, one at least.
    """
    count = sum(map(len, launches))
    shares = [share for share, least in SAMPLES_LEAST.items() if count >= least]
    return {
        f"p{round(100 * share)}": MedianLaunch.of([quantile(values, share) for values in launches]) for share in shares
    }


def in_words(numbers: Mapping[str, MedianLaunch], unit: str) -> str:
    """Return percentiles for people, each behind its name."""
    return ", ".join(f"{name} {number.text(unit)}" for name, number in numbers.items())


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
