"""The words that an interval allows, and the sentences around them. One interval decides every word.

Knows no metric; who calls says what was faster.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.launches.attempts import ShownInterval
from bridge.launches.figures import outward

FASTER: Final = 1.02  # below 2 % nobody would notice
EQUIVALENT: Final = 0.05
NOT_SLOWER: Final = 0.95
WIDEST: Final = 1.5
"""An interval that allows no word and is wider than by this factor says nothing at all."""
INTERVAL_LEAST: Final = 5
"""Of fewer launches the launches themselves are printed: an interval over them would be mostly of its quantile."""
OUTLYING: Final = 3.5
_MAD_SCALE: Final = 1.4826
_PLACES_MOST: Final = 12
NO_DIFFERENCE: Final = "no difference shown"
NOT_MEASURED: Final = "not measured well enough"
TOO_FEW: Final = "too few launches for a word"


def effect(bounds: ShownInterval) -> str:
    """Return the strongest word that the interval allows."""
    if bounds.low > FASTER:
        return "faster"
    if bounds.high < 1.0 / FASTER:
        return "slower"
    if bounds.low >= 1.0 - EQUIVALENT and bounds.high <= 1.0 + EQUIVALENT:
        return f"equivalent within {EQUIVALENT * 100:.0f} %"
    if bounds.low >= NOT_SLOWER:
        return f"not slower ({(1.0 - NOT_SLOWER) * 100:.0f} % margin)"
    return NOT_MEASURED if bounds.high > WIDEST * bounds.low else NO_DIFFERENCE


def unmeasured(bounds: ShownInterval) -> str | None:
    """Return that an interval says nothing at all; None where it says something."""
    if effect(bounds) != NOT_MEASURED:
        return None
    return f"{NOT_MEASURED}: no word holds between {ratio_text(bounds.low)} and {ratio_text(bounds.high)}"


@dataclass(frozen=True)
class Scatter:
    """Between what launches lie, and how many of them lie apart from the others.

    Attributes:
        least, median, most: ratios.
        outlying: how many lie more than `OUTLYING` scaled median absolute deviations from the median.
    """

    least: float
    median: float
    most: float
    outlying: int

    def __str__(self) -> str:
        apart = f", {self.outlying} of them outlying" if self.outlying else ""
        return f"{ratio_text(self.least)} to {ratio_text(self.most)}, median {ratio_text(self.median)}{apart}"


def scatter_of(log_ratios: Sequence[float]) -> Scatter:
    """Return how launches scatter.

    Raises:
        statistics.StatisticsError: there is none.
    """
    middle = statistics.median(log_ratios)
    apart = [abs(value - middle) for value in log_ratios]
    most = OUTLYING * _MAD_SCALE * statistics.median(apart)
    outlying = sum(distance > most for distance in apart) if most > 0.0 else 0
    return Scatter(math.exp(min(log_ratios)), math.exp(middle), math.exp(max(log_ratios)), outlying)


@dataclass(frozen=True)
class RatioWords:
    """What may be said of a ratio over launches: its word, its number, and for which sittings it was seen.

    Attributes:
        bounds: of it, with the interval that decides every word.
        launches: log ratio of each launch.
        sittings: in how many runs they were.
        load: mean share of the machine that others used in the last one; None where nobody saw it.
        units: whether the sittings, not their launches, are what the interval is over.
        looks: out of how many numbers it could have been chosen.
        least: how many launches a claim takes.
        ends: the ratio at two loads, where the runner drew them; empty elsewhere.
    """

    bounds: ShownInterval
    launches: tuple[float, ...]
    sittings: int
    load: float | None
    units: bool = False
    looks: int = 1
    least: int = INTERVAL_LEAST
    ends: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval; None with too few launches for one."""
        return None if self._few else (self.bounds.low, self.bounds.high)

    @property
    def effect(self) -> str:
        """The word that it allows."""
        return TOO_FEW if self._few else effect(self.bounds)

    @property
    def number(self) -> str:
        """The ratio with its interval and how its launches scatter; with few of them each one."""
        if self._few:
            listed = ", ".join(ratio_text(math.exp(value)) for value in self.launches)
            return f"{ratio_text(self.bounds.value)} (launches {listed}; a claim takes {self.least})"
        scatter = f"{len(self.launches)} launches ({scatter_of(self.launches)})"
        return f"{self.ends or interval_text(self.bounds)}, {scatter}{best_of(self.looks)}"

    @property
    def said(self) -> str:
        """Word and number."""
        return self.number if self._few else f"{self.effect}: {self.number}"

    @property
    def place(self) -> str:
        """In which sittings it was seen; what persists over a whole one no rule within it can see."""
        own = ", the runner's own load among them" if self.ends else ""
        return sittings(self.sittings, self.load, units=self.units) + own

    @property
    def stops(self) -> str | None:
        """Why it is no claim whatever it rests on; None where it is one."""
        return None if self._few else unmeasured(self.bounds)

    @property
    def _few(self) -> bool:
        return len(self.launches) < INTERVAL_LEAST


def ratio_text(ratio: float) -> str:
    """Return a ratio with two digits after the point, or as many more as it takes not to be 0."""
    return f"{ratio:.{max(2, _first_digit(ratio))}f}x"


def _first_digit(ratio: float) -> int:
    """Return at which place after the point a ratio's first digit stands that is not 0; 0 from 1 on."""
    return min(_PLACES_MOST, max(0, -math.floor(math.log10(ratio)))) if ratio > 0.0 else 0


def best_of(looks: int) -> str:
    """Return out of how many numbers one could have been chosen; empty where it is no choice."""
    return f", best of {looks}" if looks > 1 else ""


def interval_text(bounds: ShownInterval) -> str:
    """Return a ratio and its interval, with the digits that its half-width says something of: two at least.

    A ratio far below 1 has as many as it takes not to be 0. Bounds are rounded outwards.
    """
    half = (bounds.high - bounds.low) / 2.0
    first = _first_digit(bounds.value)
    digits = max(2, first, min(max(4, first + 1), -math.floor(math.log10(half))) if half > 0.0 else 0)
    low, high = outward(bounds.low, bounds.high, digits)
    return f"{bounds.value:.{digits}f}x [{low:.{digits}f}, {high:.{digits}f}] 95 %"


def sittings(count: int, load: float | None, *, units: bool = False) -> str:
    """Return the sittings a number is of, and what others used of the machine meanwhile.

    Args:
        count: how many.
        load: mean share of the machine that others used in the last one; None where nobody saw it.
        units: whether the sittings, not their launches, are what the interval is over.
    """
    used = "an unseen load" if load is None else f"{load * 100:.0f} % of the machine used by others"
    if count == 1:
        return f"in one sitting, {used}"
    return f"{'over' if units else 'in'} {count} sittings{' as units' if units else ''}, {used} in the last"


def wide(bounds: ShownInterval, most: float) -> str:
    """Return the note on an interval that did not reach the width, empty where it did."""
    return "" if bounds.half_width <= most else f"half-width {bounds.half_width * 100:.1f} %, not {most * 100:.0f} %"


def too_few(launches: int, least: int, needed_s: float | None, finished: int | None = None) -> str:
    """Return why so few launches carry no claim, with the minutes that enough of them need.

    Args:
        launches: that count: those of whole rotations where a rule has blocks.
        least: how many a claim needs.
        needed_s: how long so many take, None where that is not known.
        finished: how many there were, with those of a rotation that time cut off.
    """
    total = launches if finished is None else finished
    whole = "" if total == launches else f", {launches or 'none'} of them in a whole rotation"
    counted = f"{total} launch{'' if total == 1 else 'es'}{whole}, a claim needs {least}"
    if needed_s is None or not math.isfinite(needed_s):
        return counted
    return f"{counted}: about {max(1, math.ceil(needed_s / 60.0))} minutes on this machine"
