"""When enough launches ran: one rule, asked by the supervisor after each launch and by the gate of the whole list.

Width stops a run and never decides whether a number may be quoted: given that the width was reached, intervals of a
machine whose launches scatter by 8 % cover in .82 only (simulated), so choosing by it would be choosing by luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bridge.launches.estimate import Launch, LaunchRatio, over_launches, rotations

Reason = Literal["width reached", "most launches", "too few launches", "still too wide", "within a rotation"]


@dataclass(frozen=True)
class LaunchRule:
    """How many launches, and how narrow.

    Attributes:
        least: fewer are never citable.
        most: the last one, however wide the interval is.
        blocks: blocks of prompts; the width is looked at after whole rotations only.
        half_width: on the log scale; at or below it the run stops.
    """

    least: int
    most: int
    blocks: int = 1
    half_width: float = 0.03

    def __post_init__(self) -> None:
        """Check that whole rotations can reach both numbers.

        Raises:
            ValueError: they cannot.
        """
        fits = self.blocks >= 1 and self.least % self.blocks == 0 and self.most % self.blocks == 0
        if not (fits and 2 * self.groups <= self.least <= self.most and self.half_width > 0.0):
            raise ValueError(f"no rule of whole rotations: {self}")

    @property
    def groups(self) -> int:
        """Blocks whose means are removed from the spread of launches: of a single rotation nothing would be left."""
        return 1 if self.most == self.blocks else self.blocks

    def __str__(self) -> str:
        """Return the rule in words."""
        rotations = f" in rotations of {self.blocks}" if self.blocks > 1 else ""
        if self.least == self.most:
            return f"{self.least} launches{rotations}"
        return f"{self.least} to {self.most} launches{rotations}, until the half-width is {self.half_width * 100:g} %"


SITTING_LAUNCHES: Final = 5
"""Of one sitting of a standing claim: one whole rotation of five blocks, beside launch 0."""
MODELS: Final = LaunchRule(least=8, most=20)
BLOCKS: Final = LaunchRule(least=10, most=20, blocks=5)
PROCESS_PAIRS: Final = LaunchRule(least=8, most=240)


@dataclass(frozen=True)
class StopDecision:
    """What the rule says after some launches.

    Attributes:
        stop: whether no further launch is started.
        ratio: over whole rotations, None with too few of them.
        cut: launches of a rotation that is not whole: shown, outside the interval.
    """

    stop: bool
    reason: Reason
    ratio: LaunchRatio | None
    cut: int

    @property
    def launches(self) -> int:
        """Launches in the interval."""
        return 0 if self.ratio is None else self.ratio.launches


def decide(rule: LaunchRule, launches: Sequence[Launch], unseen: int = 0) -> StopDecision:
    """Return whether to stop after these launches.

    Args:
        rule: how many, and how narrow.
        launches: those with a finished pair, in the order they ran; launch 0, which calibrates, is none of them.
        unseen: how many launches left none.

    Raises:
        ValueError: a launch of no such block.
    """
    whole, cut = rotations(launches, rule.blocks)
    ratio = over_launches(in_groups(whole, rule), rule.groups)
    if len(launches) + unseen >= rule.most:
        reason: Reason = "most launches"
    elif launches and len(whole) == len(rotations(launches[:-1], rule.blocks)[0]):
        reason = "within a rotation"
    elif ratio is None or len(whole) < rule.least:
        reason = "too few launches"
    else:
        reason = "width reached" if ratio.half_width() <= rule.half_width else "still too wide"
    return StopDecision(reason in {"width reached", "most launches"}, reason, ratio, len(cut))


def in_groups(launches: Sequence[Launch], rule: LaunchRule) -> Sequence[Launch]:
    """Return launches with the block whose mean is removed from them: of a single rotation all have the same one."""
    return launches if rule.groups == rule.blocks else [replace(launch, block=0) for launch in launches]


def stopping_point(rule: LaunchRule, launches: Sequence[Launch]) -> int | None:
    """Return after how many of these launches the rule stops first, None when it never does.

    The gate repeats the supervisor's decision with it: a run that went on longer, or ended earlier without a reason,
    was not stopped by the rule.
    """
    for count in range(rule.least, len(launches) + 1):
        if decide(rule, launches[:count]).stop:
            return count
    return None


def seconds_needed(rule: LaunchRule, launch_s: Sequence[float]) -> float | None:
    """Return how long the least number of launches takes, by those that ran; None when none did."""
    return rule.least * sum(launch_s) / len(launch_s) if launch_s else None
