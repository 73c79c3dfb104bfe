"""Decide from the supervisor's stamps whether a series of launches goes on. Pure, standard library only.

The supervisor decides with it while the run goes on; the gate repeats the decision from the record. The launch is the
unit: the interval's width is that of Student's t over launch ratios, block means removed where there are blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bridge.records import LaunchRecord, LaunchSeries


@dataclass(frozen=True)
class SeriesDecision:
    """Whether the series ends, and on what grounds.

    Attributes:
        half_width: of the log ratio's interval over the launches looked at; None before it can be told.
        looked_at: how many launches it rests on.
    """

    stop: bool
    why: str
    half_width: float | None = None
    looked_at: int = 0


def decide(plan: LaunchSeries, launches: Sequence[LaunchRecord], elapsed_s: float = 0.0) -> SeriesDecision:
    """Return whether a series ends after these launches.

    Args:
        plan: names the arms and the rule.
        launches: in order, launch 0 first.
        elapsed_s: since the series began.
    """
    rule = plan.rule
    if launches and launches[0].cut is not None:
        return SeriesDecision(stop=True, why=f"launch 0 was cut, and nothing is calibrated: {launches[0].cut}")
    ratios = [ratio for ratio in (log_ratio(plan, one) for one in counting(launches)) if ratio is not None]
    whole = len(ratios) - len(ratios) % rule.blocks
    half = half_width(ratios[:whole], rule.blocks, rule.quantile) if whole >= max(rule.least, 2 * rule.blocks) else None
    if half is not None and half <= rule.half_width and whole == len(ratios):
        return SeriesDecision(stop=True, why="the interval is narrow enough", half_width=half, looked_at=whole)
    if len(counting(launches)) >= rule.most:
        return SeriesDecision(stop=True, why="the most launches there may be", half_width=half, looked_at=whole)
    if rule.allowed_s is not None and elapsed_s >= rule.allowed_s:
        return SeriesDecision(stop=True, why="the time allowed is over", half_width=half, looked_at=whole)
    return SeriesDecision(stop=False, why="the interval is too wide", half_width=half, looked_at=whole)


def counting(launches: Sequence[LaunchRecord]) -> list[LaunchRecord]:
    """Return the launches that count: all but the first one, which calibrates."""
    return [one for one in launches if one.number > 0]


def log_ratio(plan: LaunchSeries, launch: LaunchRecord) -> float | None:
    """Return log(time of the baseline / time of the candidate) over a launch's finished pairs; None without one.

    The pair is the two arms' work on one sample: a cut launch enters with the samples that both arms finished.
    """
    finished = set.intersection(
        *({turn.sample for turn in launch.turns if turn.arm == arm and turn.over} for arm in plan.arms)
    )
    spent = [
        math.fsum(turn.done_s - turn.go_s for turn in launch.turns if turn.arm == arm and turn.sample in finished)
        for arm in plan.arms
    ]
    return math.log(spent[0] / spent[1]) if all(seconds > 0 for seconds in spent) else None


def half_width(ratios: Sequence[float], blocks: int, quantile: float) -> float | None:
    """Return t(quantile, n - blocks) s / sqrt(n) over launch ratios with their blocks' means removed."""
    n, freedom = len(ratios), len(ratios) - blocks
    if freedom < 1:
        return None
    means = [fmean(ratios[block::blocks]) for block in range(blocks)]
    residual = math.fsum((ratio - means[index % blocks]) ** 2 for index, ratio in enumerate(ratios))
    return t_quantile(quantile, freedom) * math.sqrt(residual / freedom / n)


def t_quantile(p: float, freedom: int) -> float:
    """Return the p-quantile of Student's t, for p above one half and whole degrees of freedom."""
    low, high = 0.0, 1.0
    while _t_cdf(high, freedom) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, freedom: int) -> float:
    """Return Student's t distribution function at t >= 0; Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range((freedom - odd) // 2):
        total += term
        term *= cosine * cosine * ((2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2))
    sine = math.sin(angle)
    inside = (2 / math.pi) * (angle + sine * total) if odd else sine * total
    return (1 + inside) / 2
