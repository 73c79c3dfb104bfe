"""What earlier and unfinished runs do to a claim: nothing is gained by running again, by cutting or by choosing.

Knows counts and estimates, not where they are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bridge.launches.estimate import Estimate

LOOK_DAYS: Final = 30
UNSEEN_MAX: Final = 2  # from the third launch that left nothing on, who knows what was thrown away
DOUBTFUL_MAX: Final = 2
"""From the third attempt on that lost a premise by its own code within `LOOK_DAYS` its question carries no claim."""


@dataclass(frozen=True)
class ShownInterval:
    """A ratio with the interval that is printed as 95 %."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, estimate: Estimate, looks: int = 1) -> ShownInterval:
        """Return an estimate's ratio and interval, corrected for the looks it was chosen from."""
        return cls(estimate.value, *estimate.interval(looks))

    @property
    def half_width(self) -> float:
        """Half the interval's width on the log scale."""
        width = self.high / self.low  # which no float may hold, where both bounds are cut
        return (math.log(width) if width < math.inf else math.log(self.high) - math.log(self.low)) / 2.0


def weaker(every: ShownInterval, whole: ShownInterval | None) -> ShownInterval:
    """Return what holds with and without the runs that were cut: the interval that covers both.

    A word that this interval allows is allowed by each of the two, so that dropping what begins badly gains nothing.

    Args:
        every: with the finished pairs of cut runs.
        whole: without them; None when nothing else is left.
    """
    if whole is None:
        return every
    return ShownInterval(every.value, min(every.low, whole.low), max(every.high, whole.high))


def too_many_unseen(unseen: int) -> bool:
    """Return whether so many launches without one finished pair, within `LOOK_DAYS`, bar a claim."""
    return unseen > UNSEEN_MAX


def too_many_doubtful(doubtful: int) -> bool:
    """Return whether so many attempts of the same code that lost a premise, within `LOOK_DAYS`, bar a claim."""
    return doubtful > DOUBTFUL_MAX
