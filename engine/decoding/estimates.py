"""What the controller has learnt: how likely a draft position is accepted, and what a step of a depth costs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

ACCEPTANCE_WEIGHT = 0.07
USUAL_WEIGHT = 3
"""How many drafts what is usual counts for where a position was reached for the first time."""
WELL_REACHED = 16
"""So often reached, a position is known as well as any: its rate forgets what was before."""
COST_WEIGHT = 0.3
EARLY_STEPS = 3
LARGEST_INNOVATION = 0.25
PRIOR_ACCEPTANCE = 0.6
LEAST_ANSWERED = 1e-3


@dataclass(slots=True)
class Acceptance:
    """Conditional acceptance of each draft position: a mean at first, an exponential average later."""

    rates: list[float]
    reached: list[int]

    @classmethod
    def prior(cls, positions: int) -> Acceptance:
        """Start every position at the prior, worth one observation."""
        return cls([PRIOR_ACCEPTANCE] * positions, [0] * positions)

    @classmethod
    def perfect(cls, positions: int) -> Acceptance:
        """Take every position for right."""
        return cls([1.0] * positions, [1] * positions)

    def learn(self, drafted: int, accepted: int) -> None:
        """Take one block: positions up to the first rejection were reached."""
        for position in range(min(accepted + 1, drafted)):
            if position and not self.reached[position]:
                self.rates[position] = self.usual
            self.reached[position] += 1
            prior = USUAL_WEIGHT if position else 1
            weight = max(ACCEPTANCE_WEIGHT, 1.0 / (self.reached[position] + prior))
            hit = 1.0 if position < accepted else 0.0
            self.rates[position] += weight * (hit - self.rates[position])

    @property
    def usual(self) -> float:
        """How likely a position is where nothing was seen of it: what the others are, the better known the more."""
        weights = [min(count, WELL_REACHED) for count in self.reached]
        if not any(weights):
            return self.rates[0]
        return sum(rate * weight for rate, weight in zip(self.rates, weights, strict=True)) / sum(weights)

    def committed(self, depth: int) -> float:
        """Return the expected committed tokens of a step at ``depth``; unreached positions are as likely as usual."""
        return self.by_depth(depth)[depth]

    def by_depth(self, deepest: int) -> list[float]:
        """Return the expected committed tokens of a step at each depth from 0 to ``deepest``."""
        expected, survival, usual = [1.0], 1.0, self.usual
        for position in range(deepest):
            survival *= self.rates[position] if self.reached[position] else usual
            expected.append(expected[-1] + survival)
        return expected


@dataclass(slots=True)
class Waits:
    """What asks that come to nothing cost: how often an ask is answered, and the seconds lost in one on average."""

    answered: float = 1.0
    lost_s: float = 0.0

    def learn(self, answered: bool, lost_s: float) -> None:
        """Take one ask; one that was answered lost nothing."""
        self.answered += COST_WEIGHT * (answered - self.answered)
        self.lost_s += COST_WEIGHT * (lost_s - self.lost_s)

    @property
    def per_draft_s(self) -> float:
        """Seconds lost for each draft that comes."""
        return self.lost_s / max(self.answered, LEAST_ANSWERED)


@dataclass(slots=True)
class Costs:
    """Step times of one context bucket by depth, in seconds."""

    seconds: dict[int, float] = field(default_factory=dict)
    timed_steps: dict[int, int] = field(default_factory=dict)

    def learn(self, depth: int, elapsed_s: float) -> None:
        """Move the estimate of ``depth`` towards ``elapsed_s``, never by more than a quarter.

        Of the first ``EARLY_STEPS`` the shortest counts: a disturbance only ever adds time, and leaving a bad first
        estimate by quarters would take long.
        """
        self.timed_steps[depth] = self.timed_steps.get(depth, 0) + 1
        estimate = self.seconds.get(depth)
        if estimate is None or (elapsed_s < estimate and self.timed_steps[depth] <= EARLY_STEPS):
            self.seconds[depth] = elapsed_s
            return
        self.seconds[depth] = estimate + COST_WEIGHT * (clamped(elapsed_s, estimate) - estimate)

    def scale_untimed(self, times: float) -> None:
        """Take what no step was timed at for ``times`` as long."""
        for depth in self.seconds:
            if not self.timed_steps.get(depth):
                self.seconds[depth] *= times

    def of(self, depth: int) -> float | None:
        """Return the cost of ``depth``: measured, or on the line through the measured neighbours; None if unknown."""
        if depth in self.seconds:
            return self.seconds[depth]
        drafted = {timed: seconds for timed, seconds in self.seconds.items() if timed > 0}
        if not drafted:
            return None
        if len(drafted) == 1:
            # One point says what drafting costs at all; the slope of a row is a tenth of it until measured.
            only = next(iter(drafted))
            return drafted[only] * (1.0 + 0.1 * (depth - only)) if depth > only else drafted[only]
        return line(drafted, depth)


def line(seconds: Mapping[int, float], depth: int) -> float:
    """Return the time of ``depth`` on the line through the two nearest of at least two depths that are known."""
    if depth in seconds:
        return seconds[depth]
    depths = sorted(seconds)
    above = min(max(bisect_left(depths, depth), 1), len(depths) - 1)
    low, high = depths[above - 1], depths[above]
    slope = max(0.0, (seconds[high] - seconds[low]) / (high - low))
    return max(seconds[low] + slope * (depth - low), 0.5 * seconds[low])


def clamped(value: float, estimate: float) -> float:
    """Return ``value`` moved to within a quarter of ``estimate``."""
    return min(max(value, estimate * (1 - LARGEST_INNOVATION)), estimate * (1 + LARGEST_INNOVATION))
