"""The ratio of two programs on a free machine and on a half-held one, from launches of a single run.

Load slows programs unequally, so whoever starts one picks the ratio. In every second launch, drawn, the runner itself
holds half of the processors: one run then has the ratio at both ends and what lies between them. The residuals are
those beside block and load; an end whose own launches scatter more than both together has its own spread.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.launches.attempts import ShownInterval, weaker
from bridge.launches.estimate import Estimate, Launch
from bridge.launches.sittings import SITTINGS_AS_UNITS, Unit, unlike
from bridge.launches.standing import over_sittings
from bridge.launches.wording import interval_text

LOADED_MOST: Final = 20
"""Launches of such a run: ten at each end, whatever the width."""


@dataclass(frozen=True)
class ShownLoads:
    """The ratio at both ends and what lies between them, with the intervals that are printed as 95 %.

    Attributes:
        free, loaded: without and with the runner's own load.
        slope: the second over the first.
    """

    free: ShownInterval
    loaded: ShownInterval
    slope: ShownInterval

    def weaker(self, whole: ShownLoads | None) -> ShownLoads:
        """Return what holds with and without the runs that were cut or may be spoilt, each by its own interval.

        Args:
            whole: without them; None when nothing else is left.
        """
        if whole is None:
            return self
        return ShownLoads(
            weaker(self.free, whole.free), weaker(self.loaded, whole.loaded), weaker(self.slope, whole.slope)
        )

    def __str__(self) -> str:
        free, loaded, slope = map(interval_text, (self.free, self.loaded, self.slope))
        return f"{free} with all processors free, {loaded} with half of them held, {slope} from one to the other"


@dataclass(frozen=True)
class LoadedRatio:
    """The ratio at both ends.

    Attributes:
        free, loaded: without and with the runner's own load.
        slope: the second over the first.
        middle: the mean of both, which nobody quotes by itself.
        launches: how many, half of them at each end.
        sd: between launches of a block at one load, on the log scale.
        unit: what the intervals are over.
    """

    free: Estimate
    loaded: Estimate
    slope: Estimate
    middle: Estimate
    launches: int
    sd: float
    unit: Unit = "launch"

    def bounds(self, looks: int = 1) -> ShownInterval:
        """Return the interval that covers both ends: a word that it allows is allowed at each."""
        ends = [ShownInterval.of(end, looks) for end in (self.free, self.loaded)]
        return ShownInterval(self.middle.value, min(end.low for end in ends), max(end.high for end in ends))

    def shown(self, looks: int = 1) -> ShownLoads:
        """Return both ratios and the slope as they are printed, corrected for the looks they were chosen from."""
        free, loaded, slope = (ShownInterval.of(part, looks) for part in (self.free, self.loaded, self.slope))
        return ShownLoads(free, loaded, slope)


def whole_loads(launches: Sequence[Launch], blocks: int = 1) -> tuple[Launch, ...]:
    """Return as many launches of each block at each load, the first ones of each.

    Args:
        launches: in the order they ran.
        blocks: how many blocks of prompts there are.
    """
    cells: dict[tuple[int, bool], list[Launch]] = {
        (block, loaded): [] for block in range(blocks) for loaded in (False, True)
    }
    for launch in launches:
        cells[launch.block, launch.loaded].append(launch)
    most = min(len(cell) for cell in cells.values())
    return tuple(launch for cell in cells.values() for launch in cell[:most])


def over_loads(launches: Sequence[Launch], blocks: int = 1) -> LoadedRatio | None:
    """Return the ratio at both ends; None with fewer launches than the fit has numbers, one more not counted.

    Args:
        launches: in the order they ran; those of a block at one load alone are left out.
        blocks: how many blocks of prompts there are.
    """
    whole = whole_loads(launches, blocks)
    count = len(whole)
    df = count - blocks - 1
    if df < 1:
        return None
    grand = _mean(whole)
    of_block = {block: _mean([launch for launch in whole if launch.block == block]) for block in range(blocks)}
    ends = {loaded: _mean([launch for launch in whole if launch.loaded == loaded]) for loaded in (False, True)}
    squares = {
        loaded: math.fsum(
            (launch.log_ratio - of_block[launch.block] - ends[loaded] + grand) ** 2
            for launch in whole
            if launch.loaded == loaded
        )
        for loaded in ends
    }
    sd = math.sqrt(math.fsum(squares.values()) / df)
    own = {loaded: max(sd, math.sqrt(squares[loaded] / (df / 2.0))) for loaded in ends}
    free, loaded = (Estimate(ends[end], own[end] / math.sqrt(count / 2.0), df) for end in (False, True))
    slope = Estimate(ends[True] - ends[False], sd * math.sqrt(4.0 / count), df)
    middle = Estimate((ends[False] + ends[True]) / 2.0, sd / math.sqrt(count), df)
    return LoadedRatio(free, loaded, slope, middle, count, sd)


def pool_loads(sittings: Sequence[Sequence[Launch]], blocks: int = 1) -> LoadedRatio | None:
    """Return the ratio at both ends over all sittings; None where `over_loads` of their launches has none.

    All launches count alike, but three sittings or more that differ at either end by more than their launches say are
    the units themselves, as they are where no load is drawn.

    Args:
        sittings: launches of each, in the order they ran.
        blocks: how many blocks of prompts there are.
    """
    wholes = [whole for sitting in sittings if (whole := whole_loads(sitting, blocks))]
    together = over_loads([launch for whole in wholes for launch in whole], blocks)
    if together is None or len(wholes) < SITTINGS_AS_UNITS:
        return together
    free, loaded = (
        [_mean([launch for launch in whole if launch.loaded == end]) for whole in wholes] for end in (False, True)
    )
    apart = ((free, together.free.log_ratio), (loaded, together.loaded.log_ratio))
    between = math.fsum(
        len(whole) / 2.0 * (own - mean) ** 2 for means, mean in apart for whole, own in zip(wholes, means, strict=True)
    )
    upper, df = 2 * (len(wholes) - 1), together.slope.df
    if not unlike(between, upper, together.sd**2 * df - between, df - upper):
        return together
    ends = list(zip(free, loaded, strict=True))
    slope, middle = over_sittings([b - a for a, b in ends]), over_sittings([(a + b) / 2.0 for a, b in ends])
    return LoadedRatio(
        over_sittings(free), over_sittings(loaded), slope, middle, together.launches, together.sd, "sitting"
    )


def draw_loads(blocks: int, draw: random.Random) -> frozenset[int]:
    """Return which blocks of a rotation run under load: half of them, the odd one by a coin; the next has the others.

    Args:
        blocks: how many blocks of prompts there are.
        draw: draws them.
    """
    count = blocks // 2 + (draw.randrange(2) if blocks % 2 else 0)
    return frozenset(draw.sample(range(blocks), count))


def _mean(launches: Sequence[Launch]) -> float:
    return math.fsum(launch.log_ratio for launch in launches) / len(launches)
