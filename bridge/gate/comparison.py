"""Two runs against each other, by the gate's own statistics, prompt by prompt. Never citable, and it says why.

Pairs what has the same prompt digest in both runs: times by the ratio of totals, answers by Tango's paired bound. A
ratio of speed-ups compares what each run measured against its own interleaved baseline, so the machine's speed at the
two times cancels. Knows reports and records, no file and no bus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.gate import profiles
from bridge.gate.claims import CONFIDENCE
from bridge.gate.claims.generation import committed_of
from bridge.gate.claims.speed import control_ratio, effect
from bridge.gate.comparability import NEVER_CITABLE, MeasuredRun, Reason, of_prompts, of_reports, of_runs
from bridge.gate.facts.launch_series import pooled_ratio, series_ratio
from bridge.gate.facts.samples import Arm, Arms, Sample, StageName, arms_of, by_prompt
from bridge.gate.interface import Evidence, Report
from bridge.gate.report_kinds import SAMPLED
from bridge.gate.reports.loading import load
from bridge.gate.stats.binomial import paired_difference_lower, preserved
from bridge.gate.stats.multiple import holm
from bridge.gate.stats.ratio import Ratio, known_ratio, paired_double_ratio
from bridge.gate.workload_comparison import MetricDifference, own_program
from bridge.gate.workload_comparison import differences as metric_differences
from bridge.gate.workload_comparison import ratios as own_ratios
from bridge.launches.sittings import PooledRatio, agree
from bridge.records.jobspec import ATTACHMENTS

STAGES: Final[Mapping[StageName, str]] = {"decode_s": "decode", "prefill_s": "prefill"}


@dataclass(frozen=True)
class Difference:
    """One number of B against A, with what its interval allows to be said; nothing here may be quoted.

    Attributes:
        metric: ``decode_time_ratio`` and ``prefill_time_ratio`` are A's time over B's (above 1: B is faster);
            ``speedup_ratio``, ``speedup_sittings`` and ``acceptance_ratio`` are B's over A's;
            ``recall_difference`` is B's minus A's; ``identical_outputs`` counts prompts; of an owner's own program
            it is the name of a declared metric, B's less A's.
        detail: ``holm_p`` of a ratio, counts of the others.
    """

    report: str
    metric: str
    arm: str
    role: str
    value: float
    interval: tuple[float, float] | None
    confidence: float | None
    unit: str
    n: int
    wording: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Noise:
    """Half-widths of the A/A' interval of both runs, as shares; None without a control."""

    report: str
    stage: str
    a: float | None
    b: float | None
    confidence: float


@dataclass(frozen=True)
class Comparison:
    """What came out. `reasons` begin with why none of it is citable."""

    differences: tuple[Difference, ...]
    noise: tuple[Noise, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class _Drafted:
    """A ratio before several questions to one pair of runs are accounted for."""

    metric: str
    arm: Arm
    ratio: Ratio
    faster_than: str


def compare(a: MeasuredRun, b: MeasuredRun) -> Comparison:
    """Return B against A; reports that cannot be paired are reasons, never errors."""
    reasons = [Reason("weaker", NEVER_CITABLE), *of_runs(a, b)]
    if any(reason.kind == "impossible" for reason in reasons):
        return Comparison((), (), tuple(reasons))
    if own_program(a, b):
        own = [_own_metric(difference) for difference in metric_differences(a, b, reasons)]
        for name, *sides in own_ratios(a, b):
            sittings = [pooled_ratio([side], [side], lambda series: list(series.launches)) for side in sides]
            if sittings[0] is not None and sittings[1] is not None:
                own.append(_agreement(name, sittings[0].pooled, sittings[1].pooled, Place("", "", "")))
        return Comparison(tuple(own), (), tuple(reasons))
    measuring = "smoke" if "smoke" in {run.spec.profile for run in (a, b) if run.spec is not None} else "claim"
    profile = profiles.named("default", measuring)
    differences: list[Difference] = []
    noise: list[Noise] = []
    for first, second in _pairs(a, b, reasons):
        arms = _arms(first), _arms(second)
        reasons += of_reports(first, second)
        noise += _noise(first.path, arms, profile)
        differences += _of_report(first, arms, profile, reasons)
        differences += _sittings((a, first), (b, second))
    return Comparison(tuple(differences), tuple(noise), tuple(reasons))


def _own_metric(one: MetricDifference) -> Difference:
    """Return a metric of an owner's own program as a difference like any other."""
    interval, confidence = (None, None) if one.interval is None else (one.interval[:2], one.interval[2])
    detail = {"effect": one.effect, "better": one.metric.better, "paired": one.paired, "holm_p": one.p_value}
    return Difference(
        "", one.metric.name, "", "", one.value, interval, confidence, one.metric.unit, one.n, one.wording, detail
    )  # fmt: skip


def _pairs(a: MeasuredRun, b: MeasuredRun, reasons: list[Reason]) -> Iterator[tuple[Report, Report]]:
    """Yield the reports of one path and kind that hold samples; why others are left out goes to the reasons."""
    ours, theirs = ({report.path: report for report in load(_reports(run))[0]} for run in (a, b))
    paired = False
    for path in sorted({*ours, *theirs}):
        first, second = ours.get(path), theirs.get(path)
        if first is None or second is None:
            reasons.append(Reason("impossible", f"only {'A' if second is None else 'B'} has it", path))
        elif first.value is None or second.value is None:
            reasons.append(Reason("impossible", "it is not well-formed in both runs", path))
        elif first.kind != second.kind:
            reasons.append(Reason("impossible", f"other kinds: {first.kind} and {second.kind}", path))
        elif first.kind not in SAMPLED:
            reasons.append(Reason("impossible", f"kind {first.kind} has no samples that could be paired", path))
        else:
            paired = True
            yield first, second
    if not paired and not any(reason.kind == "impossible" for reason in reasons):
        reasons.append(Reason("impossible", "neither run has a report"))


def _reports(run: MeasuredRun) -> Mapping[str, bytes]:
    """Return the files of a run that are reports: what is declared to lie beside one is none."""
    beside = {output.path for output in run.spec.outputs if output.kind in ATTACHMENTS} if run.spec else set()
    return {path: data for path, data in run.reports.items() if path not in beside}


def _arms(report: Report) -> Arms:
    return arms_of(report, Evidence(reports=(report,), record=None, spec=None, profile={}))


def _of_report(
    report: Report, arms: tuple[Arms, Arms], profile: Mapping[str, Any], reasons: list[Reason]
) -> Iterator[Difference]:
    theirs = {arm.name: arm for arm in arms[1].all}
    common = [
        (arm, theirs[arm.name]) for arm in arms[0].all if arm.name in theirs and arm.role == theirs[arm.name].role
    ]
    alone = sorted({arm.name for arm in arms[0].all} ^ set(theirs))
    if alone:
        reasons.append(Reason("weaker", f"only one run has: {', '.join(alone)}", report.path))
    drafted: list[_Drafted] = []
    others: list[Difference] = []
    for first, second in common:
        reasons += of_prompts(report.path, first.name, first, second)
        drafted += _times(report.path, first, second, reasons)
        drafted += _acceptance(first, second)
        others += _outputs(report.path, first, second, profile)
    drafted += _speedup(arms)
    adjusted = holm({f"{index}": one.ratio.p_value() for index, one in enumerate(drafted)})
    for index, one in enumerate(drafted):
        yield _said(report.path, one, adjusted[f"{index}"])
    yield from others


def _matched(first: Arm, second: Arm) -> list[tuple[list[Sample], list[Sample]]]:
    """Return measured samples of both runs, prompt by prompt, by digest."""
    ours, theirs = by_prompt(first.measured, "prompt_digest"), by_prompt(second.measured, "prompt_digest")
    return [(ours[digest], theirs[digest]) for digest in ours if digest in theirs]


def _mean(samples: list[Sample], stage: StageName) -> float:
    return sum(float(sample["stages"][stage]) for sample in samples) / len(samples)


def _same_work(ours: list[Sample], theirs: list[Sample]) -> bool:
    return len({sample["output_tokens"] for sample in (*ours, *theirs)}) == 1


def _times(path: str, first: Arm, second: Arm, reasons: list[Reason]) -> Iterator[_Drafted]:
    matched = _matched(first, second)
    same = [pair for pair in matched if _same_work(*pair)]
    if len(same) < len(matched):
        left = len(matched) - len(same)
        text = f"arm {first.name!r}: {left} of {len(matched)} prompts got outputs of other lengths; not in decode times"
        reasons.append(Reason("weaker", text, path))
    for stage, word in STAGES.items():
        used = same if stage == "decode_s" else matched
        ratio = known_ratio([_mean(one, stage) for one, _ in used], [_mean(other, stage) for _, other in used])
        if ratio is not None:
            yield _Drafted(f"{word}_time_ratio", first, ratio, f"{word} of {first.name}")


def _speedup(arms: tuple[Arms, Arms]) -> Iterator[_Drafted]:
    """Yield B's speed-up over A's, each against the baseline it was interleaved with."""
    if any(one.candidate is None or one.baseline is None for one in arms):
        return
    sides = [
        [by_prompt(arm.measured, "prompt_digest") for arm in (*one.reference, one.candidate) if arm is not None]
        for one in arms
    ]
    common = [d for d in sides[0][0] if all(d in group for side in sides for group in side)]
    common = [d for d in common if _same_work([s for g in sides[0] for s in g[d]], [s for g in sides[1] for s in g[d]])]
    totals = [
        (
            [sum(_mean(group[d], "decode_s") for group in side[:-1]) / (len(side) - 1) for d in common],
            [_mean(side[-1][d], "decode_s") for d in common],
        )
        for side in sides
    ]
    ratio = _tried(lambda: paired_double_ratio(totals[1], totals[0]))
    candidate = arms[0].candidate
    if ratio is not None and candidate is not None:
        yield _Drafted("speedup_ratio", candidate, ratio, f"decode speed-up of {candidate.name} over its own baseline")


def _acceptance(first: Arm, second: Arm) -> Iterator[_Drafted]:
    if any(sample["accepted_per_step"] is None for arm in (first, second) for sample in arm.measured):
        return
    counts: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for ours, theirs in _matched(first, second):
        pairs = [[committed_of(sample, clipped=False) for sample in side] for side in (ours, theirs)]
        sums = [[sum(values) for values in zip(*side, strict=True)] for side in pairs]
        if all(forwards > 0 for _, forwards in sums):
            counts.append(((sums[0][0], sums[0][1]), (sums[1][0], sums[1][1])))
    sides = [([c[side][0] for c in counts], [c[side][1] for c in counts]) for side in (0, 1)]
    ratio = _tried(lambda: paired_double_ratio(sides[1], sides[0]))
    if ratio is not None:
        yield _Drafted("acceptance_ratio", first, ratio, f"acceptance length of {first.name}")


def _said(path: str, one: _Drafted, adjusted: float) -> Difference:
    low, high = one.ratio.interval(CONFIDENCE)
    word = effect(one.ratio)
    if word in {"faster", "slower"} and adjusted >= 1.0 - CONFIDENCE:
        word = "no difference shown"
    if one.metric in {"speedup_ratio", "acceptance_ratio"}:
        word = {"faster": "higher", "slower": "lower"}.get(word, word.replace("slower", "lower"))
    said = f"{one.faster_than}: B {word}" if word != "no difference shown" else f"{one.faster_than}: {word}"
    return Difference(
        report=path,
        metric=one.metric,
        arm=one.arm.name,
        role=one.arm.role,
        value=one.ratio.value,
        interval=(low, high),
        confidence=CONFIDENCE,
        unit="ratio",
        n=one.ratio.n,
        wording=f"{said}: {one.ratio.value:.3f}x [{low:.3f}, {high:.3f}] 95 %, {one.ratio.n} prompts",
        detail={"effect": word, "holm_p": adjusted},
    )


def _sittings(*sides: tuple[MeasuredRun, Report]) -> Iterator[Difference]:
    """Yield whether the ratios that both runs' supervisors stamped agree: two sittings of one question."""
    runs = [Evidence(reports=(report,), record=run.record, spec=run.spec, profile={}) for run, report in sides]
    found = [series_ratio(report, evidence) for (_, report), evidence in zip(sides, runs, strict=True)]
    candidate = _arms(sides[0][1]).candidate
    if found[0] is None or found[1] is None or candidate is None:
        return
    place = Place(sides[0][1].path, candidate.name, candidate.role)
    yield _agreement("speedup_sittings", found[0].pooled, found[1].pooled, place)


@dataclass(frozen=True)
class Place:
    """Where a ratio stands: the report and the arm, empty for an owner's own program."""

    report: str
    arm: str
    role: str


def _agreement(metric: str, first: PooledRatio, second: PooledRatio, place: Place) -> Difference:
    """Return whether the ratios of two sittings of one question agree, and by what they differ."""
    apart, reach = second.log_ratio - first.log_ratio, math.hypot(first.half_width(), second.half_width())
    low, value, high = (math.exp(one) for one in (apart - reach, apart, apart + reach))
    said = "agree" if agree(first, second) else "differ by more than their launches say"
    return Difference(
        place.report, metric, place.arm, place.role, value, (low, high), CONFIDENCE, "ratio",
        min(first.launches, second.launches),
        f"speed-ups over {first.launches} and {second.launches} launches {said}: {first.value:.3f}x and "
        f"{second.value:.3f}x, B over A {value:.3f}x [{low:.3f}, {high:.3f}] 95 %",
        {"agree": agree(first, second)},
    )  # fmt: skip


def _outputs(path: str, first: Arm, second: Arm, profile: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield on how many prompts both runs said the same, and what became of right answers."""
    matched = _matched(first, second)
    if not matched:
        return
    same = sum(ours[0]["tokens"] == theirs[0]["tokens"] for ours, theirs in matched)
    yield Difference(
        path, "identical_outputs", first.name, first.role, float(same), None, None, "prompts", len(matched),
        f"{first.name}: identical tokens on {same} of {len(matched)} prompts",
    )  # fmt: skip
    known = [pair for pair in matched if pair[0][0]["expected"] is not None and pair[1][0]["expected"] is not None]
    if not known:
        return
    answers = [(all(s["correct"] for s in ours), all(s["correct"] for s in theirs)) for ours, theirs in known]
    gained, lost = sum(b and not a for a, b in answers), sum(a and not b for a, b in answers)
    confidence, margin = float(profile["recall_confidence"]), float(profile["recall_margin"])
    low, found = paired_difference_lower(gained, lost, len(answers), confidence), sum(a for a, _ in answers)
    kept = preserved(found, len(answers), low, margin)
    said = f"preserved within {margin * 100:.0f} points" if kept else "not shown to be preserved"
    yield Difference(
        path, "recall_difference", first.name, first.role, (gained - lost) / len(answers), (low, 1.0), confidence,
        "share", len(answers),
        f"recall of {first.name} {said}: difference at least {low * 100:+.1f} points, {len(answers)} paired needles, "
        f"{found} of them found by A",
        {"gained": gained, "lost": lost, "preserved": kept},
    )  # fmt: skip


def _noise(path: str, arms: tuple[Arms, Arms], profile: Mapping[str, Any]) -> Iterator[Noise]:
    confidence = float(profile["control_confidence"])
    for stage, word in STAGES.items():
        a, b = (control_ratio(one, stage) for one in arms)
        floors = [None if ratio is None else ratio.half_width(confidence) for ratio in (a, b)]
        yield Noise(path, word, floors[0], floors[1], confidence)


def _tried(make: Callable[[], Ratio]) -> Ratio | None:
    try:
        return make()
    except ValueError:  # fewer than two common prompts, or times that are not positive
        return None
