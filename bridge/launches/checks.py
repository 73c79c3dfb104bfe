"""Checks of a ratio against what was timed beside it: each program alone, the host's own loop, the clock itself.

Each takes one value a launch, on the log scale where it is a ratio. Knows no names of programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.launches.distributions import t_quantile

SOLO_MOST: Final = math.log(1.10)
SOLO_UNKNOWN: Final = math.log(1.50)
"""Stretches alone that scatter so that they do not exclude this agree with anything."""
HANDICAP_MOST: Final = 0.05
HANDICAP_UNKNOWN: Final = math.log(1.35)
"""The same for the host's own loop."""
QUICKER_MOST: Final = math.log(1.50)
"""A baseline that is surely quicker than the host's own loop by more than this does not decode: somebody counts up."""
PREFILL_MOST: Final = 1.5
"""How many times as long as the baseline's a candidate's prefill may take: its drafter reads the prompt, too."""
DECODING_MOST: Final = 0.1
"""How much of its decoding a candidate's first turns may take beyond that."""
EQUAL_TIMES_MOST: Final = 0.05
BUDGET_MOST: Final = math.log(1.05)
"""How much of a ratio all that is tolerated beside it may come to together."""


@dataclass(frozen=True)
class MeanInterval:
    """A mean of one value a launch with its two-sided 95 % interval."""

    mean: float
    low: float
    high: float

    def excludes(self, most: float) -> bool:
        """Return whether the whole interval lies beyond plus or minus this."""
        return self.low > most or self.high < -most

    def within(self, most: float) -> bool:
        """Return whether the whole interval lies within plus or minus this."""
        return -most <= self.low and self.high <= most


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean and its interval; infinitely wide with one value.

    Raises:
        ValueError: no value.
    """
    if not values:
        raise ValueError("got no value, expected one a launch")
    n, mean = len(values), math.fsum(values) / len(values)
    half = math.inf if n < 2 else t_quantile(0.975, n - 1) * _error(values, mean)
    return MeanInterval(mean, mean - half, mean + half)


def solo_disagrees(solo: Sequence[float], turns: Sequence[float]) -> bool:
    """Return whether the programs alone show another ratio than in turns, by more than 10 % with its interval.

    Args:
        solo: log ratio of the solo stretches of each launch.
        turns: log ratio of the turns of the same launches.
    """
    return mean_interval([a - b for a, b in zip(solo, turns, strict=True)]).excludes(SOLO_MOST)


def solo_unknown(solo: Sequence[float], turns: Sequence[float]) -> bool:
    """Return whether the stretches alone scatter so that they would agree with turns that hide a half.

    Args:
        solo: log ratio of the solo stretches of each launch, of as many launches as a claim needs.
        turns: log ratio of the turns of the same launches.
    """
    return not mean_interval([a - b for a, b in zip(solo, turns, strict=True)]).within(SOLO_UNKNOWN)


def handicap(baseline_token_s: Sequence[float], reference_token_s: Sequence[float]) -> float:
    """Return the one-sided 95 % lower bound, over launches, of how much slower the baseline is than the host's loop.

    On the log scale; above `HANDICAP_MOST` the baseline is no baseline. With one launch nothing is known: minus
    infinity.

    Args:
        baseline_token_s: seconds a token of the baseline's solo stretch, a launch each.
        reference_token_s: seconds a token of the host's plain loop after the same launch.

    Raises:
        ValueError: no launch, or a time that is not positive.
    """
    return _handicap(baseline_token_s, reference_token_s, -1.0)


def handicap_at_most(baseline_token_s: Sequence[float], reference_token_s: Sequence[float]) -> float:
    """Return the one-sided 95 % upper bound of the same; beyond `HANDICAP_UNKNOWN` nobody knows who the baseline is.

    Raises:
        ValueError: as `handicap` does.
    """
    return _handicap(baseline_token_s, reference_token_s, 1.0)


def _handicap(baseline_token_s: Sequence[float], reference_token_s: Sequence[float], side: float) -> float:
    times = (*baseline_token_s, *reference_token_s)
    if not times or min(times) <= 0.0:
        raise ValueError(f"got {len(times)} times, expected positive ones")
    logs = [math.log(a / b) for a, b in zip(baseline_token_s, reference_token_s, strict=True)]
    mean = math.fsum(logs) / len(logs)
    half = math.inf if len(logs) < 2 else t_quantile(0.95, len(logs) - 1) * _error(logs, mean)
    return mean + side * half


def favour(handicaps: Sequence[float], gains: Sequence[float], hidden: Sequence[float]) -> float:
    """Return the one-sided 95 % lower bound of what a ratio owes to all that is tolerated beside it, on the log scale.

    A baseline a little slow, turns a little kind and a little decoding before its turn would each pass by itself; above
    `BUDGET_MOST` they do not together.

    Args:
        handicaps: log of the baseline's seconds a token, alone, over those of the host's own loop; one a launch.
        gains: log ratio of the turns less that of the stretches alone, of the same launches.
        hidden: what share of its decoding a candidate's first turns hold beyond what a prompt takes; less than none is
            none, since a quick first turn excuses nothing.

    Raises:
        ValueError: the lists are not of the same launches.
    """
    parts = zip(handicaps, gains, hidden, strict=True)
    return at_least([slow + gain + math.log1p(max(0.0, share)) for slow, gain, share in parts])


def at_least(values: Sequence[float]) -> float:
    """Return the one-sided 95 % lower bound of the mean of one value a launch; minus infinity with fewer than two."""
    if len(values) < 2:
        return -math.inf
    mean = math.fsum(values) / len(values)
    return mean - t_quantile(0.95, len(values) - 1) * _error(values, mean)


def is_clock(seconds: Sequence[float]) -> bool:
    """Return whether at most 5 % of an arm's times repeat one that was there before; a single repeat is honest.

    Apple's ticks are 41.67 ns apart, so equal values happen; times from a table repeat.
    """
    repeats = len(seconds) - len(set(seconds))
    return repeats <= max(1.0, EQUAL_TIMES_MOST * len(seconds))


def _error(values: Sequence[float], mean: float) -> float:
    n = len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
