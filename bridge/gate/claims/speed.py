"""Ratios of times between interleaved arms, and what may be said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.gate.claims import CONFIDENCE, ClaimDraft
from bridge.gate.facts.accelerators import accelerator_of, seen_of
from bridge.gate.facts.earlier_attempts import left_out
from bridge.gate.facts.launch_series import Series, SeriesRatio, load_of, series_of, series_rate, series_ratio, worked
from bridge.gate.facts.samples import Arm, Arms, Sample, StageName, arms_of, by_prompt, stage_means, steps_before
from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.multiple import holm
from bridge.gate.stats.ratio import Ratio, known_ratio
from bridge.launches import figures, wording
from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import prompts_like_these
from bridge.launches.loads import ShownLoads
from bridge.launches.stopping import BLOCKS, MODELS, decide
from bridge.records.verdict import Premise
from bridge.run.stop_rule import Part

_LIBRARIES: Final[Mapping[str, str]] = {"mlx": "mlx_lm generate_step", "torch": "transformers forward"}
SECONDARY: Final[Mapping[str, tuple[StageName, str]]] = {
    "prefill_speedup": ("prefill_s", "prefill"),
    "total_speedup": ("total_s", "end to end"),
}


def time_ratio(arms: Arms, stage: StageName, earlier: tuple[Arms, ...] = ()) -> Ratio | None:
    """Return a stage's time on the baseline over that on the candidate: above 1 the candidate is faster.

    Repeats of a prompt and earlier attempts are averaged. None without both sides, with fewer than two prompts, or with
    a total that is not positive.
    """
    runs = [found for one in (arms, *earlier) if (found := _one_run(one, stage)) is not None]
    if not runs or len(runs) != 1 + len(earlier):
        return None
    prompts = [prompt for prompt in runs[0] if all(prompt in run for run in runs)]
    sides = [[sum(run[prompt][side] for run in runs) / len(runs) for prompt in prompts] for side in (0, 1)]
    return known_ratio(*sides)


def _one_run(arms: Arms, stage: StageName) -> dict[str, tuple[float, float]] | None:
    if arms.candidate is None or not arms.reference:
        return None
    theirs = [stage_means(arm, stage) for arm in arms.reference]
    ours = stage_means(arms.candidate, stage)
    common = [prompt for prompt in theirs[0] if prompt in ours and all(prompt in side for side in theirs)]
    return {prompt: (sum(side[prompt] for side in theirs) / len(theirs), ours[prompt]) for prompt in common}


def earlier_arms(report: Report, evidence: Evidence) -> tuple[Arms, ...]:
    """Return the arms of every earlier attempt's report of the same path and kind, but of those in no pool."""
    return tuple(
        arms_of(other, evidence)
        for name, reports in evidence.earlier.items()
        if not left_out(name, evidence)
        for other in reports
        if other.value is not None and other.path == report.path and other.kind == report.kind
    )


def speedups(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the speed claims of a report with baseline and candidate; nothing without both.

    Where the supervisor handed out turns, its stamps over launches are the ratio. Otherwise it is the program's own
    word over prompts.
    """
    if arms_of(report, evidence).candidate is None:
        return
    series = series_ratio(report, evidence)
    if series is None:
        yield from _over_prompts(report, evidence)
        yield from _other_candidates(report, evidence)
        return
    yield _over_launches(report, evidence, series)
    for name, (stage, said) in SECONDARY.items():
        part: Part = "prefill" if stage == "prefill_s" else "total"
        found = series_ratio(report, evidence, part, questions=len(SECONDARY))
        if found is not None:
            yield _part_over_launches(report, evidence, found, name, said)


def _over_launches(report: Report, evidence: Evidence, found: SeriesRatio) -> ClaimDraft:
    """Return the ratio of the supervisor's stamps: its interval decides every word."""
    arms, own = arms_of(report, evidence), series_of(report, evidence)
    if own is None or arms.candidate is None or arms.baseline is None:
        raise ValueError("the ratio is of no series of launches")
    bounds, pooled = found.shown, found.pooled
    decision = decide(own.rule, own.launches)
    words, baseline = found.words(evidence, least_of(own)), baseline_name(report)
    sd = found.ends.sd if found.ends is not None else None if decision.ratio is None else decision.ratio.sd
    rest = found.spoilt + unseen(report, evidence, own)
    return ClaimDraft(
        id="decode_speedup",
        role="primary",
        value=bounds.value,
        interval=words.interval,
        confidence=None if words.interval is None else CONFIDENCE,
        unit="ratio",
        n=pooled.launches,
        wording=f"{words.place}: decode {words.said}, vs {baseline}{rest}",
        baseline=baseline,
        arms=(arms.candidate.name, *(arm.name for arm in arms.reference)),
        stops=stops_of(words),
        detail={
            "effect": words.effect,
            "over": "launches",
            "attempts": pooled.sittings,
            "unit": pooled.unit,
            "looks": found.looks,
            "launch_sd": sd,
            "half_width": bounds.half_width,
            "width": wording.wide(bounds, own.rule.half_width) or "reached",
            "ended": decision.reason,
            **own.answer,
            **loads_of(found.loads),
            "cut_launches": sum(record.cut is not None for record in own.records),
            "prompts_like_these": _other_prompts(report, evidence),
            "summary": f"{words.number}, {words.place}{rest}, vs {baseline}",
        },
    )


def loads_of(loads: ShownLoads | None) -> dict[str, Any]:
    """Return a ratio at both loads as a claim's detail has it; nothing where none was drawn."""
    if loads is None:
        return {}
    parts = {"free": loads.free, "loaded": loads.loaded, "slope": loads.slope}
    return {"loads": {name: {"value": part.value, "interval": [part.low, part.high]} for name, part in parts.items()}}


def stops_of(words: wording.RatioWords) -> dict[Premise, str]:
    """Return the premise that a ratio lacks by its own interval, with the reason."""
    return {} if words.stops is None else {"ratio": words.stops}


def least_of(series: Series) -> int:
    """Return how many launches a claim over such a series takes: a quick look is to end long before."""
    studied = MODELS if series.plan.rule.blocks == 1 else BLOCKS
    return max(series.rule.least, studied.least)


def unseen(report: Report, evidence: Evidence, own: Series) -> str:
    """Return the words for work that no source told the runner of; none where it was seen, or nobody was to look."""
    device = accelerator_of(report)
    if device is None:
        return ", who worked on the processor unseen" if own.plan.solo_s > 0.0 and worked(own) is None else ""
    return "" if seen_of(evidence, own).somehow else f", who worked on {device} unseen"


def _part_over_launches(report: Report, evidence: Evidence, found: SeriesRatio, name: str, said: str) -> ClaimDraft:
    """Return the ratio of the stamps of a part of each sample."""
    arms, bounds, own = arms_of(report, evidence), found.shown, series_of(report, evidence)
    words, baseline = found.words(evidence, MODELS.least if own is None else least_of(own)), baseline_name(report)
    return ClaimDraft(
        id=name,
        role="secondary",
        value=bounds.value,
        interval=words.interval,
        confidence=None if words.interval is None else CONFIDENCE,
        unit="ratio",
        n=found.pooled.launches,
        wording=f"{words.place}: {said} {words.said}, vs {baseline}{found.spoilt}",
        baseline=baseline,
        arms=tuple(arm.name for arm in (*arms.candidates[:1], *arms.reference)),
        stops=stops_of(words),
        detail={
            "effect": words.effect,
            "over": "launches",
            "summary": f"{words.number}, {words.place}{found.spoilt}, vs {baseline}",
        },
    )


def stamped_rate(report: Report, evidence: Evidence) -> ClaimDraft | None:
    """Return the baseline's tokens a second in the turns that were stamped; None where there are none, or too few."""
    own, found = series_of(report, evidence), series_rate(report, evidence)
    if own is None or found is None:
        return None
    bounds, pooled = found.shown, found.pooled
    few = pooled.launches < wording.INTERVAL_LEAST
    interval = None if few else (bounds.low, bounds.high)
    shown = f"{figures.shown(bounds.value, 'tokens/s', interval)}{'' if few else ' 95 %'}, {pooled.launches} launches"
    shown += "" if few else wording.best_of(found.looks)
    rest = found.spoilt + unseen(report, evidence, own)
    place = wording.sittings(pooled.sittings, load_of(evidence), units=pooled.unit == "sitting")
    too_few = wording.too_few(pooled.launches, own.rule.least, None)
    return ClaimDraft(
        id="baseline_tokens_per_s",
        role="primary",
        value=bounds.value,
        interval=interval,
        confidence=None if few else CONFIDENCE,
        unit="tokens/s",
        n=pooled.launches,
        wording=f"{place}: native decoding {shown}{rest}",
        stops={"times": too_few} if pooled.launches < own.rule.least else {},
        detail={"over": "launches", "summary": f"{shown}, {place}{rest}"},
    )


def _other_prompts(report: Report, evidence: Evidence) -> tuple[float, float] | None:
    """Return the wider interval of prompts like these, from the scatter of the program's own times over prompts."""
    series, sides = series_of(report, evidence), _one_run(arms_of(report, evidence), "decode_s")
    ratio = None if series is None else decide(series.rule, series.launches).ratio
    if ratio is None or not sides or not all(value > 0.0 for pair in sides.values() for value in pair):
        return None
    found = prompts_like_these(ratio, [a for a, _ in sides.values()], [b for _, b in sides.values()])
    return None if found is None else found.interval()


def _over_prompts(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    arms = arms_of(report, evidence)
    earlier = earlier_arms(report, evidence)
    ratio = time_ratio(arms, "decode_s", earlier)
    if ratio is None or arms.candidate is None or arms.baseline is None:
        return
    names = (arms.candidate.name, *(arm.name for arm in arms.reference))
    before = before_onset(arms, earlier)
    worse, over = ratio, "all tokens"
    if before is not None and before.lower(0.975) < ratio.lower(0.975):
        worse, over = before, "before loops"
    attempts, baseline = 1 + len(earlier), baseline_name(report)
    shown = shown_ratio(worse)
    shown += ", before loops" if over == "before loops" else ""
    shown += f", {attempts} attempts pooled" if attempts > 1 else ""
    said = effect(worse)
    yield replace(
        ClaimDraft.of_ratio("decode_speedup", "primary", worse, f"decode {said}: {shown}, vs {baseline}"),
        baseline=baseline,
        arms=names,
        detail={
            "effect": said,
            "over": over,
            "attempts": attempts,
            "noise_floor": noise_floor(arms, evidence.profile),
            "summary": f"{shown}, vs {baseline}",
        },
    )
    yield from _secondaries(report, arms, earlier, names)


def _other_candidates(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the decode ratio of each candidate beyond the first; several questions of one report share its error."""
    arms, earlier = arms_of(report, evidence), earlier_arms(report, evidence)
    ratios: dict[str, Ratio] = {}
    for arm in arms.candidates[1:]:
        before = tuple(one.against(other) for one in earlier for other in one.candidates if other.name == arm.name)
        ratio = time_ratio(arms.against(arm), "decode_s", before)
        if ratio is not None:
            ratios[arm.name] = ratio
    adjusted, baseline = holm({name: ratio.p_value() for name, ratio in ratios.items()}), baseline_name(report)
    for name, ratio in ratios.items():
        said = effect(ratio) if adjusted[name] < 1.0 - CONFIDENCE else "no difference shown"
        shown = shown_ratio(ratio)
        wording = f"{name}: decode {said}: {shown}, vs {baseline}"
        yield replace(
            ClaimDraft.of_ratio(f"decode_speedup_{name}", "secondary", ratio, wording),
            baseline=baseline,
            arms=(name, *(arm.name for arm in arms.reference)),
            detail={"effect": said, "holm_p": adjusted[name], "summary": f"{shown}, vs {baseline}"},
        )


def shown_ratio(ratio: Ratio) -> str:
    """Return a ratio with its interval and number of prompts."""
    bounds = ShownInterval(ratio.value, *ratio.interval(CONFIDENCE))
    return f"{wording.interval_text(bounds)}, {ratio.n} prompts"


def _secondaries(report: Report, arms: Arms, earlier: tuple[Arms, ...], names: tuple[str, ...]) -> Iterator[ClaimDraft]:
    ratios: dict[str, Ratio] = {}
    for name, (stage, _) in SECONDARY.items():
        ratio = time_ratio(arms, stage, earlier)
        if ratio is not None:
            ratios[name] = ratio
    adjusted = holm({name: ratio.p_value() for name, ratio in ratios.items()})
    baseline = baseline_name(report)
    for name, ratio in ratios.items():
        said = effect(ratio) if adjusted[name] < 1.0 - CONFIDENCE else "no difference shown"
        shown = shown_ratio(ratio)
        yield replace(
            ClaimDraft.of_ratio(name, "secondary", ratio, f"{SECONDARY[name][1]} {said}: {shown}, vs {baseline}"),
            baseline=baseline,
            arms=names,
            detail={"effect": said, "holm_p": adjusted[name], "summary": f"{shown}, vs {baseline}"},
        )


def effect(ratio: Ratio) -> str:
    """Return the word that the interval over prompts allows."""
    return wording.effect(ShownInterval(ratio.value, *ratio.interval(CONFIDENCE)))


def control_ratio(arms: Arms, stage: StageName = "decode_s") -> Ratio | None:
    """Return baseline over control, the same code twice; None without a control or without usable times."""
    if arms.baseline is None or arms.control is None:
        return None
    first, second = stage_means(arms.baseline, stage), stage_means(arms.control, stage)
    common = [prompt for prompt in first if prompt in second]
    return known_ratio([first[p] for p in common], [second[p] for p in common])


def noise_floor(arms: Arms, profile: Mapping[str, Any], stage: StageName = "decode_s") -> float | None:
    """Return the half-width of the control's interval: what this run could not have seen."""
    control = control_ratio(arms, stage)
    return None if control is None else control.half_width(float(profile["control_confidence"]))


def before_onset(arms: Arms, earlier: tuple[Arms, ...] = ()) -> Ratio | None:
    """Return the ratio of decode times before loops begin, None when nothing loops.

    A sample's time before its loop is its decode time by share of steps: every step of an arm costs about the same.
    """
    if arms.candidate is None or arms.baseline is None or earlier:
        return None
    if all(sample["loop_onset"] is None for arm in arms.all for sample in arm.measured):
        return None
    theirs = [_clipped(arm) for arm in arms.reference]
    ours = _clipped(arms.candidate)
    common = [p for p in ours if all(p in side for side in theirs) and ours[p] > 0 and all(s[p] > 0 for s in theirs)]
    return known_ratio([sum(s[p] for s in theirs) / len(theirs) for p in common], [ours[p] for p in common])


def _clipped(arm: Arm) -> dict[str, float]:
    return {
        prompt: sum(sample["stages"]["decode_s"] * _share(sample) for sample in samples) / len(samples)
        for prompt, samples in by_prompt(arm.measured).items()
    }


def _share(sample: Sample) -> float:
    onset, steps = sample["loop_onset"], sample["counters"]["steps"]
    return 1.0 if onset is None or not steps else steps_before(sample, onset) / steps


def baseline_name(report: Report) -> str:
    """Return whose decoding the baseline is, for people: by the backend, whose version the runner knows.

    What a report calls its code path is its own word, and stands in no sentence.
    """
    return _LIBRARIES.get(str(report.body["environment"]["backend"]), "its own baseline")
