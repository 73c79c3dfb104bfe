"""The claims of an owner's own program: what its declared metrics come to over the repeats of a run.

Knows aggregates and their intervals. Whether the program may be believed is for the rules.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from bridge.gate.claims import CONFIDENCE, ClaimDraft, Role
from bridge.gate.claims.percentiles import median_interval
from bridge.gate.claims.servers import of_servers
from bridge.gate.claims.speed import loads_of, stops_of
from bridge.gate.facts.earlier_attempts import left_out, standing_of, told
from bridge.gate.facts.launch_series import Series, pooled_ratio, split_attempts
from bridge.gate.facts.pair_series import series_named
from bridge.gate.interface import Evidence, Report
from bridge.gate.reports.workload import NAME, found_at, number_at
from bridge.gate.stats.binomial import rate_lower, rate_upper
from bridge.launches import figures
from bridge.launches.distributions import t_quantile
from bridge.launches.stopping import PROCESS_PAIRS, decide
from bridge.launches.wording import best_of
from bridge.records.workload import MetricDefinition, WorkloadDefinition

REPEATS_LEAST: Final = 6
"""Six values are the fewest whose range covers the median in 95 %: 1 - 2 / 2**6 = 96.9 %."""
_LISTED_MOST_CHARS: Final = 640  # a wording has 1024


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield a draft for each declared metric; one that a report does not hold is left to the rules."""
    definition = None if evidence.spec is None else evidence.spec.workload
    if definition is None:
        return
    rows = rows_of(report)
    for place, metric in enumerate(definition.metrics):
        role: Role = "primary" if place == 0 else "secondary"
        if metric.aggregate == "ratio":
            draft = _ratio(metric, role, evidence, definition)
        elif definition.servers is not None:
            draft = of_servers(metric, role, report, evidence, definition)
        elif metric.aggregate in {"share", "count"}:
            draft = _items(metric, role, rows, evidence)
        elif metric.aggregate == "none":
            draft = None
        else:
            draft = _over_repeats(metric, role, rows, evidence)
        if draft is not None:
            yield draft


def rows_of(report: Report) -> list[dict[str, Any]]:
    """Return the repeats of a well-formed report: path, seed and value of each."""
    return cast("dict[str, Any]", report.body)[NAME]  # type: ignore[no-any-return]


def earlier_rows(evidence: Evidence) -> dict[str, list[dict[str, Any]]]:
    """Return the repeats of each earlier attempt that left some, by run id."""
    return {name: rows_of(report) for name, reports in evidence.earlier.items() for report in reports if report.value}


def _over_repeats(
    metric: MetricDefinition,
    role: Role,
    rows: Sequence[dict[str, Any]],
    evidence: Evidence,
) -> ClaimDraft | None:
    """Return the median or mean over the repeats of this run and its earlier attempts, with its interval over seeds.

    The interval covers those with and without the attempts that the program itself may have spoilt.
    """
    pointer, earlier = str(metric.pointer), earlier_rows(evidence)
    left = {
        name: numbers
        for name, attempt in earlier.items()
        if not left_out(name, evidence, metric.name) and (numbers := _numbers(attempt, pointer))
    }
    pooled = list(left.values())
    beyond_doubt = [one for name, one in left.items() if standing_of(name, evidence, metric.name).use == "whole"]
    mine = [(row["seed"], number_at(row["value"], pointer)) for row in rows]
    by_run = [*mine, *itertools.chain(*pooled)]
    values = sorted(_by_seed(by_run))
    each_run = sorted(number for _, number in by_run)
    without = sorted(_by_seed([*mine, *itertools.chain(*beyond_doubt)]))
    if not values:
        return None
    looks = evidence.looks
    same = same_number(each_run, metric.digits) if len(values) > 1 else None
    found = _interval(metric, values, without, evidence.confidence(CONFIDENCE)) if same is None else None
    value = _middle(metric, values) if same is None else same
    shown = _over_runs(metric, value, values, each_run, found, repeated=same is not None)
    shown += ("" if found is None else best_of(looks)) + _direction(metric)
    shown += told(earlier, evidence, metric.name)
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=value,
        interval=None if found is None else found[:2],
        confidence=None if found is None else found[2],
        unit=metric.unit,
        n=len(values),
        wording=f"{metric.name} {shown}",
        stops=_stops(metric, each_run, looks, unknown=found is None and same is None),
        detail={
            "aggregate": metric.aggregate,
            "better": metric.better,
            "values": values,
            "over": "runs" if same is not None or len(values) < REPEATS_LEAST else "seeds",
            "runs": 1 + len(pooled),
            **({} if same is None else {"digits": metric.digits}),
            "summary": shown,
        },
    )


def rounded(value: float, digits: int) -> float:
    """Return a number with so many significant digits."""
    return float(f"{value:.{digits - 1}e}")


def same_number(values: Sequence[float], digits: int) -> float | None:
    """Return the number that at least two runs gave to so many significant digits; None where they gave several.

    Where they differ beyond these digits it has no more of them.
    """
    numbers = {rounded(value, digits) for value in values}
    if len(values) < 2 or len(numbers) > 1:
        return None
    return values[0] if len(set(values)) == 1 else numbers.pop()


def _middle(metric: MetricDefinition, values: Sequence[float]) -> float:
    return statistics.median(values) if metric.aggregate == "median" else statistics.fmean(values)


def _interval(
    metric: MetricDefinition, values: Sequence[float], without: Sequence[float], confidence: float
) -> tuple[float, float, float] | None:
    """Return the interval that holds with and without attempts that may be spoilt; None with too few runs for one."""
    interval_of = median_interval if metric.aggregate == "median" else mean_interval
    every = interval_of(values, confidence)
    return _covering(every, interval_of(without, confidence)) if without else every


def _over_runs(
    metric: MetricDefinition,
    value: float,
    values: Sequence[float],
    numbers: Sequence[float],
    interval: tuple[float, float, float] | None,
    *,
    repeated: bool,
) -> str:
    """Return a number over the runs that gave it: with its interval, as the same in all of them, or each by itself.

    Args:
        metric: which says its unit and its digits.
        value: what they come to.
        values: one of each seed.
        numbers: one of each run; several runs may have had one seed.
        interval: over seeds, None with too few of them.
        repeated: whether all runs gave the same number.
    """
    unitless = ", no unit" if metric.unit == figures.UNITLESS else ""
    count, runs = len(values), len(numbers)
    if repeated:
        number = figures.shown(value, metric.unit, digits=metric.digits)
        how = ": the seed changes nothing" if len(set(numbers)) == 1 else f" to {metric.digits} digits"
        return f"{number}{unitless}, the same in {runs} of {runs} runs{how}"
    if interval is None:
        over = f"{runs} runs" if runs == count else f"{count} seed{'s' if count > 1 else ''} in {runs} runs"
        each = "in one run" if runs == 1 else f"the {metric.aggregate} of {over}: {_listed(values)}"
        return f"{figures.shown(value, metric.unit)}{unitless}, {each}"
    text = f"{figures.shown(value, metric.unit, interval[:2])} {min(99.9, interval[2] * 100):.3g} %{unitless}"
    if metric.aggregate == "median":
        return text
    return f"{text}, the mean of {_listed(values)}, if seeds scatter symmetrically"


def _covering(
    every: tuple[float, float, float] | None, without: tuple[float, float, float] | None
) -> tuple[float, float, float] | None:
    """Return the interval that covers both, at the lesser confidence; None where one has none."""
    if every is None or without is None:
        return None
    return min(every[0], without[0]), max(every[1], without[1]), min(every[2], without[2])


def _listed(values: Sequence[float]) -> str:
    """Return sorted values for people: each of them, or what they lie between where a sentence has no room for all."""
    listed = ", ".join(map(_number, values))
    if len(listed) <= _LISTED_MOST_CHARS:
        return listed
    return f"{len(values)} values from {_number(values[0])} to {_number(values[-1])}"


def _by_seed(numbers: Sequence[tuple[int | None, float]]) -> Iterator[float]:
    """Yield a value a seed, the mean where several runs had it: a sweep's cell that is tried again draws no new one."""
    found: dict[int, list[float]] = {}
    for seed, number in numbers:
        if seed is None:
            yield number
        else:
            found.setdefault(seed, []).append(number)
    yield from (statistics.fmean(several) for several in found.values())


def _numbers(rows: Sequence[dict[str, Any]], pointer: str) -> list[tuple[int | None, float]]:
    """Return seeds and numbers of an earlier attempt; none where one is missing, which the rule on attempts says."""
    try:
        return [(row["seed"], number_at(row["value"], pointer)) for row in rows]
    except (KeyError, ValueError):
        return []


def _direction(metric: MetricDefinition) -> str:
    """Return which direction is an improvement, in words; nothing where none is."""
    return "" if metric.better is None else f", {metric.better} is better"


def _stops(metric: MetricDefinition, numbers: Sequence[float], looks: int, *, unknown: bool) -> dict[Any, str]:
    """Return which premises the numbers of runs lack by themselves."""
    if metric.exact and len(set(numbers)) > 1:
        return {"inputs": f"declared exact, and {len(numbers)} runs gave {len(set(numbers))} numbers"}
    if looks > 1 and unknown:
        few = "one run says" if len(numbers) == 1 else f"{len(numbers)} runs say"
        return {"inputs": f"one of {looks} that could be chosen from, and {few} too little of chance"}
    return {}


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float] | None:
    """Return Student's interval of the mean; None with fewer than `REPEATS_LEAST` values."""
    n = len(values)
    if n < REPEATS_LEAST:
        return None
    half = t_quantile(0.5 + confidence / 2.0, n - 1) * statistics.stdev(values) / math.sqrt(n)
    mean = statistics.fmean(values)
    return mean - half, mean + half, confidence


def _items(
    metric: MetricDefinition, role: Role, rows: Sequence[dict[str, Any]], evidence: Evidence
) -> ClaimDraft | None:
    """Return how many of the distinct items of one repeat count: exact bounds for a share, none for a count.

    Args:
        metric: as declared.
        role: of the claim.
        rows: the repeats of this run.
        evidence: which says out of how many numbers it could be chosen; the bounds are as wide as that asks.
    """
    if not rows:
        return None
    counted = [count_items(metric, row["value"]) for row in rows]
    k, n = counted[0]
    if n == 0:
        return None
    shown, interval = f"{k} of {n} {metric.unit}", None
    if metric.aggregate == "share":
        tail = 0.5 + evidence.confidence(CONFIDENCE) / 2.0
        interval = (rate_lower(k, n, tail), rate_upper(k, n, tail))
        shown = f"{figures.proportion(k / n, interval)} 95 %, {k} of {n} items"
    shown += _other_repeats(counted)
    shown += best_of(evidence.looks)
    shown += _direction(metric)
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=k / n if interval is not None else float(k),
        interval=interval,
        confidence=None if interval is None else CONFIDENCE,
        unit=metric.unit,
        n=n,
        wording=f"{metric.name} {shown}",
        detail={"aggregate": metric.aggregate, "better": metric.better, "over": "items", "summary": shown},
    )


def _other_repeats(counted: Sequence[tuple[int, int]]) -> str:
    """Return that a count is of the first of several repeats, and between what they lie; empty where all are alike."""
    if len(set(counted)) == 1:
        return ""
    ordered = sorted(counted, key=lambda items: items[0] / max(1, items[1]))
    (least, of_least), (most, of_most) = ordered[0], ordered[-1]
    return f" in the first of {len(counted)} repeats, which gave {least} of {of_least} to {most} of {of_most}"


def count_items(metric: MetricDefinition, value: Any) -> tuple[int, int]:
    """Return how many items of a report count, and how many there are.

    Raises:
        KeyError: there is no list of items.
        ValueError: an item says neither yes nor no.
    """
    listed = found_at(value, str(metric.items))
    return sum(counts(item, metric.correct) for item in listed), len(listed)


def counts(item: Any, correct: str | None) -> bool:
    """Whether an item of a list counts.

    Raises:
        ValueError: it says neither yes nor no.
    """
    # A fault of a report is one kind of error, whatever Python would call it.
    said = item.get(correct) if correct and isinstance(item, dict) else item if not correct else None
    if not isinstance(said, bool):
        raise ValueError(f"an item says {str(said)[:40]!r}{f' under {correct}' if correct else ''}, not true or false")  # noqa: TRY004
    return said


def _ratio(
    metric: MetricDefinition, role: Role, evidence: Evidence, definition: WorkloadDefinition
) -> ClaimDraft | None:
    """Return the ratio of two programs' times over launches, this run's and its earlier attempts'."""
    own = series_named(metric.name, evidence, evidence.record)
    if own is None:
        return None
    of_attempts = _earlier(metric, evidence, own)
    known, beyond_doubt = split_attempts(own, of_attempts, evidence, metric.name)
    looks = evidence.looks
    ratio = pooled_ratio(known, beyond_doubt, lambda series: list(series.launches), looks=looks)
    if ratio is None:
        return None
    decision, bounds = decide(own.rule, own.launches), ratio.shown
    sd = None if decision.ratio is None else decision.ratio.sd
    words = ratio.words(evidence, PROCESS_PAIRS.least)
    rest = told(of_attempts, evidence, metric.name)
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=bounds.value,
        interval=words.interval,
        confidence=None if words.interval is None else CONFIDENCE,
        unit=metric.unit,
        n=ratio.pooled.launches,
        wording=f"{words.place}: {metric.name} {words.said}, {definition.label}, both as identified{rest}",
        stops=stops_of(words),
        detail={
            "aggregate": "ratio",
            "better": metric.better,
            "effect": words.effect,
            "over": "launches",
            "summary": f"{words.said}, {definition.label}",
            "launch_sd": sd,
            "half_width": bounds.half_width,
            "ended": decision.reason,
            **own.answer,
            **loads_of(ratio.loads),
        },
    )


def _earlier(metric: MetricDefinition, evidence: Evidence, own: Series) -> dict[str, Series]:
    found = {name: series_named(metric.name, evidence, record) for name, record in evidence.earlier_records.items()}
    return {name: one for name, one in found.items() if one is not None and one.plan == own.plan}


def _number(value: float) -> str:
    return str(figures.shown(value, figures.UNITLESS))
