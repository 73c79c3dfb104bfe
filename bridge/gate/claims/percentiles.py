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
from bridge.launches.distributions import t_quantile

HIGH_SHARES: Final = (0.9, 0.99)


@dataclass(frozen=True)
class Bounded:
    """A number with an interval over launches: what is measured within one launch is not independent.

    Attributes:
        bounds: low, high and how often they cover; None with too few launches.
    """

    value: float
    bounds: tuple[float, float, float] | None

    @classmethod
    def median_launch(cls, values: Sequence[float], confidence: float = CONFIDENCE) -> Bounded:
        """Return the median of a number a launch.

        Args:
            values: a number a launch.
            confidence: how often the bounds are to cover at least.

        Raises:
            statistics.StatisticsError: there is none.
        """
        return cls(statistics.median(values), median_interval(sorted(values), confidence))

    @classmethod
    def over_all(
        cls, launches: Sequence[Sequence[float]], share: float, confidence: float = CONFIDENCE
    ) -> Bounded | None:
        """Return a high percentile of all samples; None where launches differ so much that too few tell of it.

        The share of samples below it has an error over launches, and its bounds are the percentiles at both ends of
        that share (Woodruff, J. Am. Stat. Assoc. 47, 1952). As many independent samples as err so have to be enough.
        What only some launches have and none of these had is seen by nobody.

        Args:
            launches: samples of each, two at least.
            share: of the samples that lie at or below it.
            confidence: how often the bounds are to cover.
        """
        every = [value for values in launches for value in values]
        value, independent = quantile(every, share), share * (1.0 - share) / len(every)
        below = [sum(each < value for each in values) for values in launches]
        up_to = [sum(each <= value for each in values) for values in launches]
        apart = max(1.0, *(_share_variance(counts, launches) / independent for counts in (below, up_to)))
        if len(every) / apart < samples_least(share, confidence):
            return None
        half = t_quantile(0.5 + confidence / 2.0, len(launches) - 1) * math.sqrt(apart * independent)
        return cls(value, (quantile(every, share - half), quantile(every, min(1.0, share + half)), confidence))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bounds alone."""
        return None if self.bounds is None else self.bounds[:2]

    @property
    def confidence(self) -> float | None:
        """How often the bounds cover."""
        return None if self.bounds is None else self.bounds[2]

    def covering(self, other: Bounded) -> Bounded:
        """Return it with bounds that cover another's too, at the lesser confidence; with none where one has none."""
        if self.bounds is None or other.bounds is None:
            return Bounded(self.value, None)
        (low, high, share), (other_low, other_high, other_share) = self.bounds, other.bounds
        return Bounded(self.value, (min(low, other_low), max(high, other_high), min(share, other_share)))

    def text(self, unit: str) -> str:
        """Return it with its interval, for people."""
        return str(figures.shown(self.value, unit, self.interval))


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of what was seen many times.

    Attributes:
        p50: that of the median launch.
        high: by name those that so many samples have, of all samples; None for one that launches differ too much for.
    """

    p50: Bounded
    high: Mapping[str, Bounded | None]

    @classmethod
    def of(cls, launches: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Percentiles:
        """Return the percentiles of samples.

        Args:
            launches: samples of each, one at least.
            confidence: how often their bounds are to cover at least.
        """
        count = sum(map(len, launches)) if len(launches) > 1 else 0
        shares = [share for share in HIGH_SHARES if count >= samples_least(share, confidence)]
        return cls(
            Bounded.median_launch([quantile(values, 0.5) for values in launches], confidence),
            {f"p{round(100 * share)}": Bounded.over_all(launches, share, confidence) for share in shares},
        )

    def covering(self, other: Percentiles) -> Percentiles:
        """Return them with bounds that cover another's too, without those that one of the two does not know."""
        high: dict[str, Bounded | None] = {}
        for name in self.high.keys() & other.high.keys():
            mine, theirs = self.high[name], other.high[name]
            high[name] = None if mine is None or theirs is None else mine.covering(theirs)
        return Percentiles(self.p50.covering(other.p50), dict(sorted(high.items())))

    def words(self, unit: str) -> str:
        """Return them for people, each behind its name."""
        high = (
            f", {name} not known, launches differ" if number is None else f", {name} {number.text(unit)}"
            for name, number in self.high.items()
        )
        return f"p50 {self.p50.text(unit)}{''.join(high)}"


def samples_least(share: float, confidence: float = CONFIDENCE) -> int:
    """Return how many samples a high percentile takes: of fewer even the largest lies below it too often for a bound.

    In 95 % the p90 takes 36, whose largest lies above it in 97.7 %, and the p99 368; one out of several takes more.

    Args:
        share: of the samples that lie at or below it.
        confidence: how often its bounds are to cover.
    """
    return math.ceil(math.log((1.0 - confidence) / 2.0) / math.log(share))


def _share_variance(counts: Sequence[int], launches: Sequence[Sequence[float]]) -> float:
    """Return the variance over launches of the share of samples that are counted; a launch is a cluster."""
    total, clusters = sum(map(len, launches)), len(launches)
    share = sum(counts) / total
    squares = math.fsum((count - share * len(values)) ** 2 for count, values in zip(counts, launches, strict=True))
    return clusters / (clusters - 1) * squares / total**2


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
        below += math.comb(n, drop) / (1 << n)
        confidence = 1.0 - 2.0 * below
        if confidence < least:
            break
        best = (values[drop], values[n - 1 - drop], confidence)
    return best


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value below or at which so large a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1]
