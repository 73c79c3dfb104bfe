"""The ratio of a question on a host, over sittings that began apart: where it lies, and where the next one will.

A sitting is one run, so what a machine is like for a while is in all of its launches: the sitting is the unit. Load
moves ratios, so where sittings saw different ones the ratio is given at the least and the greatest of them. Knows
means, loads and times, no record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bridge.launches.attempts import ShownInterval
from bridge.launches.distributions import t_quantile
from bridge.launches.estimate import TAIL, Estimate, bounds_of
from bridge.launches.wording import best_of, effect, interval_text

SITTINGS_LEAST: Final = 6
APART_LEAST_S: Final = 600.0
"""Between the beginnings of two sittings: nearer ones share what the machine is like for a while."""
LOADS_DIFFER: Final = 0.15
"""Loads further apart than this share of the machine are two situations, not one."""


@dataclass(frozen=True)
class Sitting:
    """One run of a question.

    Attributes:
        number: which attempt it is of the question on its host, from 1.
        log_ratio: mean of the logs of its launches' ratios.
        began_s: when it began, on the clock of its host.
        ended_s: when it ended.
        load: mean share of the machine that others used; None where nobody saw it.
    """

    number: int
    log_ratio: float
    began_s: float
    ended_s: float
    load: float | None = None


@dataclass(frozen=True)
class AtLoad(Estimate):
    """The ratio at one load.

    Attributes:
        load: share of the machine that others use; None where sittings do not differ by it.
        next_error: standard error of the next sitting's own ratio about this one.
    """

    load: float | None
    next_error: float

    def next_half_width(self, looks: int = 1) -> float:
        """Return half the width, on the log scale, of the interval that predicts the next sitting."""
        return t_quantile(1.0 - TAIL / looks, self.df) * self.next_error

    def next_sitting(self, looks: int = 1) -> ShownInterval:
        """Return where the next sitting's ratio will lie at this load."""
        return ShownInterval(self.value, *bounds_of(self.log_ratio, self.next_half_width(looks)))


@dataclass(frozen=True)
class StandingRatio:
    """The ratio of a question on a host.

    Attributes:
        ends: at the least and the greatest load that was seen; only one where loads hardly differ.
        sittings: how many it is over.
        span_s: from the beginning of the first to the end of the last.
    """

    ends: tuple[AtLoad, ...]
    sittings: int
    span_s: float

    def words(self, loads: Sequence[float | None], looks: int = 1) -> str:
        """Return the ratio with its word, at which load it was seen, and where the next sitting will lie.

        Args:
            loads: of the sittings, None where nobody saw it.
            looks: out of how many numbers it could have been chosen.
        """
        chosen = best_of(looks)
        word = effect(self.bounds(looks))
        if len(self.ends) > 1:
            at = ", ".join(
                f"{interval_text(ShownInterval.of(end, looks))} at {_load_text(end.load)}" for end in self.ends
            )
            ahead = ", ".join(f"{_between(end.next_sitting(looks))} at {_load_text(end.load)}" for end in self.ends)
            return f"{word} at each load: {at} of the machine used by others{chosen}; the next sitting {ahead}"
        (end,) = self.ends
        observed = [load for load in loads if load is not None]
        used = "an unseen load"
        if observed and len(observed) == len(loads):
            used = f"{_load_text(min(observed), max(observed))} of the machine used by others"
        shown = interval_text(ShownInterval.of(end, looks))
        return f"{word}: {shown}, {used}{chosen}; the next sitting {_between(end.next_sitting(looks))}"

    def bounds(self, looks: int = 1) -> ShownInterval:
        """Return the interval that covers every end: a word that it allows is allowed at each."""
        shown = [ShownInterval.of(end, looks) for end in self.ends]
        middle = math.fsum(end.log_ratio for end in self.ends) / len(self.ends)
        return ShownInterval(math.exp(middle), min(end.low for end in shown), max(end.high for end in shown))


def _between(bounds: ShownInterval) -> str:
    """Return the bounds of a prediction, with the digits of its half-width."""
    return interval_text(bounds).partition(" ")[2].removesuffix(" 95 %")


def _load_text(load: float | None, most: float | None = None) -> str:
    """Return a share of the machine, or from the least to the greatest, in percent."""
    low = round((load or 0.0) * 100.0)
    high = low if most is None else round(most * 100.0)
    return f"{low} %" if low == high else f"{low} to {high} %"


def standing_ratio(sittings: Sequence[Sitting]) -> StandingRatio | None:
    """Return what sittings say together; None with too few of them for a spread.

    Args:
        sittings: in the order they began; `missing_of` says whether they carry a claim.
    """
    loads = [sitting.load for sitting in sittings if sitting.load is not None]
    varied = len(loads) == len(sittings) and max(loads, default=0.0) - min(loads, default=0.0) > LOADS_DIFFER
    if len(sittings) < (3 if varied else 2):
        return None
    values = [sitting.log_ratio for sitting in sittings]
    ends = (over_sittings(values),) if not varied else at_loads(values, loads, (min(loads), max(loads)))
    return StandingRatio(ends, len(sittings), sittings[-1].ended_s - sittings[0].began_s)


def over_sittings(log_ratios: Sequence[float]) -> AtLoad:
    """Return the mean of one value a sitting, with its error and that of the next sitting's value.

    Raises:
        ValueError: fewer than two sittings.
    """
    count = len(log_ratios)
    if count < 2:
        raise ValueError(f"got {count} sittings, expected at least 2")
    mean = math.fsum(log_ratios) / count
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in log_ratios) / (count - 1))
    return AtLoad(mean, sd / math.sqrt(count), count - 1, None, sd * math.sqrt(1.0 + 1.0 / count))


def at_loads(log_ratios: Sequence[float], loads: Sequence[float], at: Sequence[float]) -> tuple[AtLoad, ...]:
    """Return the ratio at some loads, by the least-squares line over sittings.

    Args:
        log_ratios: a value a sitting.
        loads: the load of each.
        at: the loads that are asked for.

    Raises:
        ValueError: fewer than three sittings, or all of them at one load.
    """
    count = len(log_ratios)
    if count < 3 or count != len(loads):
        raise ValueError(f"got {count} sittings and {len(loads)} loads, expected as many and at least 3")
    mean, middle = math.fsum(log_ratios) / count, math.fsum(loads) / count
    squares = math.fsum((load - middle) ** 2 for load in loads)
    if squares <= 0.0:
        raise ValueError("all sittings are at one load")
    slope = math.fsum((load - middle) * (y - mean) for load, y in zip(loads, log_ratios, strict=True)) / squares
    line = [mean + slope * (load - middle) for load in loads]
    rest = math.fsum((y - fitted) ** 2 for y, fitted in zip(log_ratios, line, strict=True))
    sd = math.sqrt(rest / (count - 2))
    ends = []
    for load in at:
        share = 1.0 / count + (load - middle) ** 2 / squares
        fitted = mean + slope * (load - middle)
        ends.append(AtLoad(fitted, sd * math.sqrt(share), count - 2, load, sd * math.sqrt(1.0 + share)))
    return tuple(ends)


def missing_of(sittings: Sequence[Sitting], count: int, apart_s: float = APART_LEAST_S) -> tuple[str, ...]:
    """Return why sittings are no standing claim, in words; empty where they are one.

    Args:
        sittings: in the order they began.
        count: how many the first request fixed: whoever may add one until he likes the number chooses it.
        apart_s: how far apart they had to begin; anything but the default is for a study, whose numbers nobody quotes.
    """
    reasons = []
    if count < SITTINGS_LEAST:
        reasons.append(f"{count} sittings were asked for, a standing claim takes at least {SITTINGS_LEAST}")
    if len(sittings) != count:
        reasons.append(f"{len(sittings)} of the {count} sittings that the first request fixed are here")
    numbers = [sitting.number for sitting in sittings]
    gaps = [number for before, after in pairwise(numbers) for number in range(before + 1, after)]
    if gaps:
        reasons.append(f"attempt {', '.join(map(str, gaps[:8]))} is missing between them")
    for before, after in pairwise(sittings):
        later_s = after.began_s - before.began_s
        if later_s < apart_s:
            reasons.append(
                f"attempt {after.number} began {later_s / 60.0:.1f} minutes after attempt {before.number}, expected at "
                f"least {apart_s / 60.0:.0f}"
            )
            break
    return tuple(reasons)
