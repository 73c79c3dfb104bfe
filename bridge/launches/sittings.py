"""Several runs of one question: whether two agree, and what all of them say together.

A sitting is a run: one machine in one state, from its first launch to its last. What persists over a whole sitting no
rule within it can see, so sittings that differ by more than their launches say become the units themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bridge.launches.distributions import beta_cdf
from bridge.launches.estimate import Estimate, Launch, means, over_launches, rotations

DIFFERENT_ALPHA: Final = 0.05
SITTINGS_AS_UNITS: Final = 3  # fewer have no spread worth the name
Unit = Literal["launch", "sitting"]


@dataclass(frozen=True)
class PooledRatio(Estimate):
    """The ratio over sittings.

    Attributes:
        unit: what the interval is over.
        sittings, launches: how many there are.
    """

    unit: Unit
    sittings: int
    launches: int


def agree(first: Estimate, second: Estimate) -> bool:
    """Return whether two runs agree: they differ by no more than the root of their squared half-widths' sum."""
    return abs(first.log_ratio - second.log_ratio) <= math.hypot(first.half_width(), second.half_width())


def pool(sittings: Sequence[Sequence[Launch]], blocks: int = 1) -> PooledRatio | None:
    """Return the ratio over all sittings; None with fewer than two whole rotations.

    All launches count alike, and what sittings differ by is part of their spread. Three sittings or more that differ by
    more than their launches say (F test at 5 %) are the units themselves.

    Raises:
        ValueError: a launch of no such block.
    """
    wholes = [whole for sitting in sittings if (whole := rotations(sitting, blocks)[0])]
    together = over_launches([launch for whole in wholes for launch in whole], blocks)
    if together is None:
        return None
    count = together.launches
    if len(wholes) >= SITTINGS_AS_UNITS and _differ(wholes, blocks):
        each = [means(whole, blocks)[0] for whole in wholes]
        middle = math.fsum(each) / len(each)
        variance = math.fsum((value - middle) ** 2 for value in each) / (len(each) - 1)
        error = math.sqrt(variance / len(each))
        return PooledRatio(middle, error, len(each) - 1, "sitting", len(wholes), count)
    return PooledRatio(together.log_ratio, together.error, together.df, "launch", len(wholes), count)


def unlike(between: float, upper: float, within: float, lower: float) -> bool:
    """Return whether sittings differ by more than their launches say: F test at 5 %.

    Args:
        between: sum of squares that the sittings explain.
        upper: its degrees of freedom.
        within: sum of squares that they leave.
        lower: its degrees of freedom.
    """
    if lower < 1:
        return False
    if within <= 0.0:
        return between > 0.0
    ratio = between / upper / (within / lower)
    return beta_cdf(lower / (lower + upper * ratio), lower / 2.0, upper / 2.0) < DIFFERENT_ALPHA


def _differ(wholes: Sequence[Sequence[Launch]], blocks: int) -> bool:
    """Return whether sittings differ, by their log ratios without the means of blocks."""
    count = sum(len(whole) for whole in wholes)
    overall, groups = means([launch for whole in wholes for launch in whole], blocks)
    own = [means(whole, blocks)[0] for whole in wholes]
    between = math.fsum(len(w) * (mean - overall) ** 2 for w, mean in zip(wholes, own, strict=True))
    total = math.fsum((launch.log_ratio - groups[launch.block]) ** 2 for whole in wholes for launch in whole)
    upper = len(wholes) - 1
    return unlike(between, upper, total - between, count - blocks - upper)
