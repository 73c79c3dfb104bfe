"""Two runs of an owner's own program against each other, metric by metric. Never citable.

Where the seeds of both follow from one sweep the repeats are paired by seed; otherwise two lists of values are all
there is. Knows reports and job specs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.gate.claims import CONFIDENCE
from bridge.gate.claims.percentiles import median_interval
from bridge.gate.claims.workload import mean_interval, rounded, rows_of, same_number
from bridge.gate.comparability import MeasuredRun, Reason
from bridge.gate.declared.workload import OVER_SEEDS
from bridge.gate.facts.launch_series import Series
from bridge.gate.facts.pair_series import series_named
from bridge.gate.interface import Evidence
from bridge.gate.reports.workload import load, number_at
from bridge.gate.stats.binomial import sign_test
from bridge.gate.stats.multiple import holm
from bridge.launches.distributions import t_cdf
from bridge.launches.figures import shown
from bridge.records.workload import MetricDefinition

_NOTHING: Final = "no difference shown"


@dataclass(frozen=True)
class MetricDifference:
    """One metric of B less the same of A.

    Attributes:
        value: B less A: the median or mean of the differences by seed, or of the values.
        interval: over paired seeds; None where they are not paired, or too few.
        effect: ``higher``, ``lower`` or ``no difference shown``: in 95 % over all metrics that are compared, or by
            numbers that no seed changes.
        paired: whether both runs had the same seeds.
        n: pairs, or the values of the smaller run.
        p_value: of no difference, by the sign test or Student's, adjusted for the other metrics by `differences`; None
            without an interval.
        fixed: whether each run gave one number with all of its seeds, so that no chance is in their difference.
        exact: whether the repeats of each gave that number to its last digit, and not only to those of the metric.
    """

    metric: MetricDefinition
    value: float
    interval: tuple[float, float, float] | None
    effect: str
    paired: bool
    n: int
    p_value: float | None = None
    fixed: bool = False
    exact: bool = True

    @property
    def wording(self) -> str:
        """The difference in one line."""
        better = self.metric.better
        judged = "" if better is None or self.effect not in {"higher", "lower"} else (
            " (better)" if self.effect == better else " (worse)"
        )  # fmt: skip
        bounds = None if self.interval is None else self.interval[:2]
        said = f"{self.metric.name}: B {self.effect}{judged}: {shown(self.value, self.metric.unit, bounds, sign=True)}"
        if self.fixed:
            return f"{said}, each the same in all of its runs{'' if self.exact else f' to {self.metric.digits} digits'}"
        if self.interval is not None:
            said += f" {self.interval[2] * 100:.3g} %"
        said += f", {self.n} {'paired seeds' if self.paired else 'seeds each, not paired'}"
        alone = _effect(self.interval) != self.effect
        return f"{said}, p {self.p_value:.2g} among the metrics compared (Holm)" if alone else said


def own_program(a: MeasuredRun, b: MeasuredRun) -> bool:
    """Whether one of the runs is of an owner's own program."""
    return any(run.spec is not None and run.spec.workload is not None for run in (a, b))


def differences(a: MeasuredRun, b: MeasuredRun, reasons: list[Reason]) -> Iterator[MetricDifference]:
    """Yield what the declared metrics of both differ by; what stands against that goes to the reasons."""
    if a.spec is None or b.spec is None or a.spec.workload is None or b.spec.workload is None:
        reasons.append(Reason("impossible", "only one of them is a run of an owner's own program"))
        return
    ours, theirs = ({one.name: one for one in spec.workload.metrics} for spec in (a.spec, b.spec) if spec.workload)
    if a.spec.workload.digest != b.spec.workload.digest:
        digests = f"{a.spec.workload.digest[:12]} and {b.spec.workload.digest[:12]}"
        reasons.append(Reason("weaker", f"the program or what it runs with was changed between them: {digests}"))
    found = []
    for name in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None or (one.aggregate, one.unit) != (other.aggregate, other.unit):
            reasons.append(Reason("impossible", f"metric {name} is not declared alike in both"))
        elif one.aggregate == "ratio" or a.spec.workload.servers is not None:
            continue  # of two programs by turns, like the engine's own: `ratios` has them
        elif one.aggregate not in OVER_SEEDS:
            said = f"metric {name} (aggregate {one.aggregate}) is not compared: only medians, means and ratios are"
            reasons.append(Reason("impossible", said))
        else:
            difference = _difference(one, _by_seed(a, one), _by_seed(b, other))
            if difference is None:
                reasons.append(Reason("impossible", f"metric {name} is missing in a run"))
            else:
                found.append(difference)
    yield from _adjusted(found)


def ratios(a: MeasuredRun, b: MeasuredRun) -> Iterator[tuple[str, Series, Series]]:
    """Yield the name of each ratio that both declare, with the launches of both."""
    if a.spec is None or b.spec is None or a.spec.workload is None or b.spec.workload is None:
        return
    common = {metric.name for metric in a.spec.workload.metrics if metric.aggregate == "ratio"}
    for metric in b.spec.workload.metrics:
        if metric.aggregate == "ratio" and metric.name in common:
            sides = [Evidence(reports=(), record=run.record, spec=run.spec, profile={}) for run in (a, b)]
            series = [series_named(metric.name, side, side.record) for side in sides]
            if series[0] is not None and series[1] is not None:
                yield metric.name, series[0], series[1]


def _adjusted(found: Sequence[MetricDifference]) -> Iterator[MetricDifference]:
    """Yield the differences with the words that are left once each is one question of several."""
    adjusted = holm({one.metric.name: one.p_value for one in found if one.p_value is not None})
    for one in found:
        p_value = adjusted.get(one.metric.name)
        kept = one.fixed or (p_value is not None and p_value < 1.0 - CONFIDENCE)
        yield replace(one, p_value=p_value, effect=one.effect if kept else _NOTHING)


def _by_seed(run: MeasuredRun, metric: MetricDefinition) -> dict[int, float]:
    """Return the values of a run's repeats by seed; none where a report does not hold one."""
    if run.spec is None or run.spec.workload is None:
        return {}
    (report,), _ = load(run.reports, run.spec, run.spec.workload)
    rows: list[Mapping[str, Any]] = [] if report.value is None else list(rows_of(report))
    try:
        return {int(row["seed"]): number_at(row["value"], str(metric.pointer)) for row in rows}
    except (KeyError, ValueError):
        return {}


def _difference(
    metric: MetricDefinition, ours: Mapping[int, float], theirs: Mapping[int, float]
) -> MetricDifference | None:
    if not ours or not theirs:
        return None
    middle = statistics.median if metric.aggregate == "median" else statistics.fmean
    shared, numbers = sorted(set(ours) & set(theirs)), [list(values.values()) for values in (ours, theirs)]
    paired, least = len(shared) == len(ours) == len(theirs), min(len(ours), len(theirs))
    one_each = [number for values in numbers if (number := same_number(values, metric.digits)) is not None]
    if len(one_each) == len(numbers):
        # Beyond the digits to which the repeats of one agree nobody knows which of the two is larger.
        exact = all(len(set(values)) == 1 for values in numbers)
        one_each = one_each if exact else [rounded(number, metric.digits) for number in one_each]
        apart = one_each[1] - one_each[0]
        effect = _direction(apart)
        return MetricDifference(metric, apart, None, effect, paired=paired, n=least, fixed=True, exact=exact)
    if paired:
        pairs = sorted(theirs[seed] - ours[seed] for seed in shared)
        exact = metric.aggregate == "median"
        interval = median_interval(pairs) if exact else mean_interval(pairs)
        p_value = None if interval is None else sign_test(pairs) if exact else _student(pairs)
        effect = _effect(interval)
        return MetricDifference(metric, middle(pairs), interval, effect, paired=True, n=len(pairs), p_value=p_value)
    apart = middle(numbers[1]) - middle(numbers[0])
    return MetricDifference(metric, apart, None, _NOTHING, paired=False, n=least)


def _direction(apart: float) -> str:
    """Return the word for a difference that no chance is in."""
    return "higher" if apart > 0.0 else "lower" if apart < 0.0 else _NOTHING


def _student(values: Sequence[float]) -> float:
    """Return the two-sided p-value of a mean of 0."""
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    if error == 0.0:
        return 0.0 if mean else 1.0
    return 2.0 * t_cdf(-abs(mean / error), len(values) - 1)


def _effect(interval: tuple[float, float, float] | None) -> str:
    """Return the word that an interval of differences allows."""
    if interval is None or interval[0] <= 0.0 <= interval[1]:
        return _NOTHING
    return "higher" if interval[0] > 0.0 else "lower"
