"""The ratio of two programs over launches: a process is one unit, whatever was timed inside it.

What is measured inside one process shares its memory layout, its threads and the minute it ran in, so those times are
no independent units. Blocks of prompts are balanced and their means are removed: prompts differ, launches scatter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.launches.distributions import t_quantile

TAIL: Final = 0.02  # on each side; t(.98) instead of t(.975) pays for stopping at a width: docs/evidence/simulation.md
LOG_MOST: Final = 700.0
"""Two launches and many looks leave bounds that no float holds; they are cut here."""


@dataclass(frozen=True)
class Launch:
    """One process that timed both programs.

    Attributes:
        log_ratio: logarithm of the baseline's seconds over the candidate's; above 0 the candidate is faster.
        block: which block of prompts it ran, from 0.
        loaded: whether the runner held processors meanwhile.
    """

    log_ratio: float
    block: int = 0
    loaded: bool = False


def bounds_of(log_ratio: float, half_width: float) -> tuple[float, float]:
    """Return the ratios half a width below and above one; what no number holds is the least and the largest that is."""
    low, high = (max(-LOG_MOST, min(LOG_MOST, log_ratio + side)) for side in (-half_width, half_width))
    return math.exp(low), math.exp(high)


@dataclass(frozen=True)
class Estimate:
    """A logarithm of a ratio with its standard error."""

    log_ratio: float
    error: float
    df: float

    @property
    def value(self) -> float:
        """The ratio."""
        return math.exp(self.log_ratio)

    def half_width(self, looks: int = 1) -> float:
        """Return half the width, on the log scale, of the interval that is printed as 95 %.

        Args:
            looks: how many ratios this one was chosen from; the interval is that of 1 - .05 / looks.
        """
        return t_quantile(1.0 - TAIL / looks, self.df) * self.error

    def interval(self, looks: int = 1) -> tuple[float, float]:
        """Return the interval of the ratio that is printed as 95 %."""
        return bounds_of(self.log_ratio, self.half_width(looks))


@dataclass(frozen=True)
class LaunchRatio(Estimate):
    """The ratio over launches.

    Attributes:
        sd: standard deviation between launches of a block, on the log scale.
        launches: how many.
    """

    sd: float
    launches: int


def over_launches(launches: Sequence[Launch], blocks: int = 1) -> LaunchRatio | None:
    """Return the ratio over whole rotations; None with fewer than two of them.

    Args:
        launches: in the order they ran.
        blocks: how many blocks of prompts there are; a rotation runs each of them once.

    Raises:
        ValueError: a launch of no such block.
    """
    whole, _ = rotations(launches, blocks)
    if len(whole) < 2 * blocks:
        return None
    mean, groups = means(whole, blocks)
    df = len(whole) - blocks
    squares = math.fsum((launch.log_ratio - groups[launch.block]) ** 2 for launch in whole)
    sd = math.sqrt(squares / df)
    return LaunchRatio(mean, sd / math.sqrt(len(whole)), df, sd, len(whole))


def rotations(launches: Sequence[Launch], blocks: int) -> tuple[tuple[Launch, ...], tuple[Launch, ...]]:
    """Return as many launches of every block, the first ones of each, and those that are left over.

    Left over are those of a rotation that time cut, or whose other launch left nothing.

    Raises:
        ValueError: a launch of no such block.
    """
    count = Counter(launch.block for launch in launches)
    if any(not 0 <= block < blocks for block in count):
        raise ValueError(f"got launches of blocks {sorted(count)}, expected 0 to {blocks - 1}")
    most = min(count[block] for block in range(blocks))
    taken: Counter[int] = Counter()
    whole: list[Launch] = []
    rest: list[Launch] = []
    for launch in launches:
        (whole if taken[launch.block] < most else rest).append(launch)
        taken[launch.block] += 1
    return tuple(whole), tuple(rest)


def means(whole: Sequence[Launch], blocks: int) -> tuple[float, dict[int, float]]:
    """Return the mean of the log ratios and those of each block; every block has as many launches."""
    share = len(whole) // blocks
    groups = {b: math.fsum(launch.log_ratio for launch in whole if launch.block == b) / share for b in range(blocks)}
    return math.fsum(groups.values()) / blocks, groups


def prompts_like_these(
    ratio: LaunchRatio, baseline_s: Sequence[float], candidate_s: Sequence[float]
) -> Estimate | None:
    """Return the same ratio as an estimate for other prompts of this kind: the wider, second interval.

    The launches' error and that of the drawn prompts (delta method on the ratio of totals) add up; degrees of freedom
    after Satterthwaite, Biometrics Bulletin 2 (1946). None with fewer than two prompts.

    Args:
        ratio: of the pinned prompts.
        baseline_s: seconds of each distinct prompt, averaged over the launches that ran it.
        candidate_s: the same of the candidate.

    Raises:
        ValueError: lists of different lengths, or a total that is not positive.
    """
    n = len(baseline_s)
    if n != len(candidate_s):
        raise ValueError(f"got {n} and {len(candidate_s)} prompts, expected the same ones")
    if n < 2:
        return None
    top, bottom = math.fsum(baseline_s) / n, math.fsum(candidate_s) / n
    if not (top > 0.0 and bottom > 0.0):
        raise ValueError("a total is not positive")
    parts = [a / top - b / bottom for a, b in zip(baseline_s, candidate_s, strict=True)]  # they sum to zero
    prompts = math.fsum(part * part for part in parts) / (n - 1) / n
    launches = ratio.error * ratio.error
    both = prompts + launches
    if both == 0.0:
        return Estimate(ratio.log_ratio, 0.0, ratio.df)
    df = both * both / (prompts * prompts / (n - 1) + launches * launches / ratio.df)
    return Estimate(ratio.log_ratio, math.sqrt(both), df)
