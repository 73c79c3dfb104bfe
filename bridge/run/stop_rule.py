"""Read the supervisor's stamps as launches, and say whether their series goes on. Pure, standard library only.

The supervisor asks while the run goes on; the gate repeats the decision from the record. The rule itself is
`bridge.launches.stopping`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bridge.launches.answers import LOOKS, answer
from bridge.launches.estimate import Launch
from bridge.launches.stopping import LaunchRule, StopDecision
from bridge.launches.stopping import decide as stops
from bridge.records.turns import LaunchRecord, LaunchSeries, Turn

Part = Literal["decode", "prefill", "total"]


@dataclass(frozen=True)
class SeriesDecision:
    """Whether the series ends, and on what grounds.

    Attributes:
        rule: what the rule over launches says; None where the series ends for another reason.
        yes: what a word that was asked is answered with; None where none was, or it is open.
    """

    stop: bool
    why: str
    rule: StopDecision | None = None
    yes: bool | None = None


def decide(plan: LaunchSeries, launches: Sequence[LaunchRecord], elapsed_s: float = 0.0) -> SeriesDecision:
    """Return whether a series ends after these launches.

    Args:
        plan: names the arms and the rule.
        launches: in order, launch 0 first.
        elapsed_s: since the series began.
    """
    if launches and launches[0].cut is not None:
        return SeriesDecision(stop=True, why=f"launch 0 was cut, and nothing is calibrated: {launches[0].cut}")
    rule = plan.rule
    measured = finished(plan, launches)
    decision = stops(rule_of(plan), measured, len(counting(launches)) - len(measured))
    if plan.asks is not None:
        yes = answered(plan, measured)
        if yes is not None:
            why = f"{'' if yes else 'not '}{plan.asks.word}, as a look at {len(measured)} launches answers"
            return SeriesDecision(stop=True, why=why, yes=yes)
    if (plan.asks is not None or plan.load is not None) and decision.reason == "width reached":
        decision = replace(decision, stop=False, reason="still too wide")  # a width answers nothing, and is of no load
    if not decision.stop and rule.allowed_s is not None:
        if elapsed_s >= rule.allowed_s:
            return SeriesDecision(stop=True, why="the time allowed is over", rule=decision)
        last_s = _last_launch_begins_s(plan, launches, elapsed_s)
        if last_s is not None and last_s >= rule.allowed_s:
            why = f"a further rotation does not fit: its last launch would begin after {last_s:.0f} s"
            return SeriesDecision(stop=True, why=why, rule=decision)
    return SeriesDecision(stop=decision.stop, why=decision.reason, rule=decision)


def _last_launch_begins_s(plan: LaunchSeries, launches: Sequence[LaunchRecord], elapsed_s: float) -> float | None:
    """Return when the last launch of the next rotation would begin, if it took as long as the last one.

    None within a rotation, before the first one, and without blocks: there every launch is whole by itself.
    """
    blocks, counted = plan.rule.blocks, counting(launches)
    if blocks == 1 or not counted or len(counted) % blocks:
        return None
    lasted_s = elapsed_s - (counted[-blocks].started_s - launches[0].started_s)
    return elapsed_s + lasted_s * (blocks - 1) / blocks


def rule_of(plan: LaunchSeries) -> LaunchRule:
    """Return the rule over launches that a plan names."""
    return LaunchRule(plan.rule.least, plan.rule.most, plan.rule.blocks, plan.rule.half_width)


def answered(plan: LaunchSeries, measured: Sequence[Launch]) -> bool | None:
    """Return what these launches answer the word with that a plan asks; None where it is open, or none is asked.

    Raises:
        KeyError: it is asked under a rule without looks.
    """
    if plan.asks is None:
        return None
    return answer(rule_of(plan), measured, plan.asks.word, plan.asks.margin)


def looks_of(plan: LaunchSeries) -> tuple[int, ...]:
    """Return after how many launches a word is looked at."""
    return LOOKS[rule_of(plan)]


def counting(launches: Sequence[LaunchRecord]) -> list[LaunchRecord]:
    """Return the launches that count: all but the first one, which calibrates."""
    return [launch for launch in launches if launch.number > 0]


def finished(plan: LaunchSeries, launches: Sequence[LaunchRecord], part: Part = "decode") -> list[Launch]:
    """Return the launches that count and finished a pair, in order; a cut one enters with the pairs it finished."""
    ratios = [(log_ratio(plan, launch, part), launch) for launch in counting(launches)]
    return [Launch(ratio, launch.block, bool(launch.loaded)) for ratio, launch in ratios if ratio is not None]


def log_ratio(plan: LaunchSeries, launch: LaunchRecord, part: Part = "decode") -> float | None:
    """Return log(time of the baseline / time of the candidate) over a launch's finished pairs; None without one.

    The pair is the two arms' work on one sample: a cut launch enters with the samples that both arms finished.

    Args:
        plan: names the arms.
        launch: as stamped.
        part: what of a sample; where the plan tells no prefill apart, "decode" is all of it, and so is "prefill".
    """
    both = set.intersection(
        *({turn.sample for turn in launch.turns if turn.arm == arm and turn.over} for arm in plan.arms)
    )
    spent = [
        math.fsum(turn.done_s - turn.go_s for turn in turns_of(plan, launch, arm, part) if turn.sample in both)
        for arm in plan.arms
    ]
    return math.log(spent[0] / spent[1]) if all(seconds > 0 for seconds in spent) else None


def turns_of(plan: LaunchSeries, launch: LaunchRecord, arm: str, part: Part = "total") -> list[Turn]:
    """Return the turns of an arm that belong to a part of its samples."""
    mine = [turn for turn in launch.turns if turn.arm == arm]
    if part == "total" or not plan.prefill:
        return mine
    first = {turn.sample: turn.number for turn in reversed(mine)}
    return [turn for turn in mine if (turn.number == first[turn.sample]) == (part == "prefill")]
