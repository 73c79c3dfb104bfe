"""Two runs of an owner's own program against each other, metric by metric. Never citable.

Where the seeds of both follow from one sweep the repeats are paired by seed; otherwise two lists of values are all
there is. Knows reports and job specs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.gate.claims.workload import mean_interval, median_interval, rows_of
from bridge.gate.comparability import MeasuredRun, Reason
from bridge.gate.declared.workload import OVER_SEEDS
from bridge.gate.reports.workload import load, number_at
from bridge.records import MetricDefinition

UNITLESS: Final = "1"


@dataclass(frozen=True)
class MetricDifference:
    """One metric of B less the same of A.

    Attributes:
        value: B less A: the median or mean of the differences by seed, or of the values.
        interval: over paired seeds; None where they are not paired, or too few.
        effect: ``higher``, ``lower`` or ``no difference shown``.
        paired: whether both runs had the same seeds.
        n: pairs, or the values of the smaller run.
    """

    metric: MetricDefinition
    value: float
    interval: tuple[float, float, float] | None
    effect: str
    paired: bool
    n: int

    @property
    def wording(self) -> str:
        """The difference in one line."""
        unit = "" if self.metric.unit == UNITLESS else f" {self.metric.unit}"
        better = self.metric.better
        judged = "" if better is None or self.effect not in {"higher", "lower"} else (
            " (better)" if self.effect == better else " (worse)"
        )  # fmt: skip
        said = f"{self.metric.name}: B {self.effect}{judged}: {self.value:+.4g}{unit}"
        if self.interval is not None:
            low, high, confidence = self.interval
            said += f" [{low:+.4g}, {high:+.4g}] {confidence * 100:.3g} %"
        return f"{said}, {self.n} {'paired seeds' if self.paired else 'seeds each, not paired'}"


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
    for name, metric in ours.items():
        other = theirs.get(name)
        if other is None or (metric.aggregate, metric.unit) != (other.aggregate, other.unit):
            reasons.append(Reason("impossible", f"metric {name} is not declared alike in both"))
        elif metric.aggregate in OVER_SEEDS:
            found = _difference(metric, _by_seed(a, metric), _by_seed(b, other))
            if found is None:
                reasons.append(Reason("impossible", f"metric {name} is missing in a run"))
            else:
                yield found


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
    shared = sorted(set(ours) & set(theirs))
    if len(shared) == len(ours) == len(theirs):
        pairs = sorted(theirs[seed] - ours[seed] for seed in shared)
        interval = median_interval(pairs) if metric.aggregate == "median" else mean_interval(pairs)
        return MetricDifference(metric, middle(pairs), interval, _effect(interval), paired=True, n=len(pairs))
    apart = middle(list(theirs.values())) - middle(list(ours.values()))
    least = min(len(ours), len(theirs))
    return MetricDifference(metric, apart, None, "no difference shown", paired=False, n=least)


def _effect(interval: tuple[float, float, float] | None) -> str:
    """Return the word that an interval of differences allows."""
    if interval is None or interval[0] <= 0.0 <= interval[1]:
        return "no difference shown"
    return "higher" if interval[0] > 0.0 else "lower"
