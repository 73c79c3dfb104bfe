"""What a report of generations says beside speed: acceptance, identity, throughput of the baseline, memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from bridge.gate.claims import CONFIDENCE, ClaimDraft, Role
from bridge.gate.claims.speed import stamped_rate
from bridge.gate.facts.launch_series import series_of
from bridge.gate.facts.outputs import first_difference, repeated_share
from bridge.gate.facts.samples import Arm, Sample, arms_of, by_prompt, expected_drafts, idle_refusals, steps_before
from bridge.gate.interface import Evidence, Report
from bridge.gate.report_kinds import ACCEPTANCE
from bridge.gate.stats.ratio import Ratio, known_ratio
from bridge.launches import figures
from bridge.launches.wording import best_of
from bridge.records.verdict import Premise

DTYPE_WORDS: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def acceptance(report: Report, evidence: Evidence, role: Role = "secondary") -> Iterator[ClaimDraft]:
    """Yield mean acceptance length and rate of each candidate, the worse of all tokens and before loops."""
    in_turns = series_of(report, evidence) is not None
    for place, candidate in enumerate(arms_of(report, evidence).candidates):
        suffix = "" if place == 0 else f"_{candidate.name}"
        stops = _drafts_unseen(candidate, report)
        for draft in _accepted(candidate, role if place == 0 else "secondary", suffix, stops, evidence):
            yield draft if in_turns else _as_it_counts(draft)


def _as_it_counts(draft: ClaimDraft) -> ClaimDraft:
    """Return a claim on steps that nobody but their program saw: the turns of a series would show them."""
    word = ", as its program counts its steps"
    summary = str(draft.detail.get("summary") or draft.wording)
    why = "nobody handed out turns, whose tokens show the steps: only its program counted them"
    return replace(
        draft,
        wording=f"{draft.wording}{word}",
        stops={"outputs": why, **draft.stops},
        detail={**draft.detail, "summary": f"{summary}{word}"},
    )


def _drafts_unseen(candidate: Arm, report: Report) -> dict[Premise, str]:
    """Return why nobody but its program knows how much an arm drafted; empty where its depth says it.

    Turns show how many tokens a step committed, never how many drafts it refused.
    """
    if all(expected_drafts(sample, report.body["config"]) is not None for sample in candidate.measured):
        return {}
    return {"outputs": f"how much {candidate.name!r} drafted was decided at run time, and only its program counted it"}


def _accepted(
    candidate: Arm, role: Role, suffix: str, stops: Mapping[Premise, str], evidence: Evidence
) -> Iterator[ClaimDraft]:
    everything = _acceptance(candidate, clipped=False)
    before = _acceptance(candidate, clipped=True)
    if everything is None:
        return
    worse = before if before is not None and before.value < everything.value else everything
    interval = worse.interval(evidence.confidence(CONFIDENCE))
    low, high = figures.outward(*interval, 2)
    chosen = best_of(evidence.looks)
    drafted = sum(sample["counters"]["drafted_tokens"] for sample in candidate.measured)
    accepted = sum(sample["counters"]["accepted_tokens"] for sample in candidate.measured)
    repeated = sum(repeated_share(s["tokens"]) for s in candidate.measured) / len(candidate.measured)
    loops = sum(1 for sample in candidate.measured if sample["loop_onset"] is not None)
    shown = f"before loops {before.value:.2f}; " if before is not None and loops else ""
    shown += f"repeated 8-grams {repeated * 100:.0f} %"
    yield replace(
        ClaimDraft.of_ratio(
            f"acceptance_length{suffix}",
            role,
            worse,
            f"{worse.value:.2f} committed tokens per target forward [{low:.2f}, {high:.2f}] 95 %, {worse.n} prompts"
            f"{chosen}",
        ),
        interval=interval,
        unit="tokens/forward",
        arms=(candidate.name,),
        detail={
            "all_tokens": everything.value,
            "before_loops": None if before is None else before.value,
            "repeated_8_grams": repeated,
            "looping_samples": loops,
            "summary": f"{everything.value:.2f} tokens/forward ({shown}){chosen}",
        },
    )
    if drafted:
        yield ClaimDraft(
            id=f"acceptance_rate{suffix}",
            role="secondary",
            value=accepted / drafted,
            unit="share",
            n=len(candidate.measured),
            arms=(candidate.name,),
            stops=stops,
            wording=f"{accepted} of {drafted} drafted tokens accepted ({accepted / drafted * 100:.1f} %)",
        )


def _acceptance(arm: Arm, *, clipped: bool) -> Ratio | None:
    committed: list[float] = []
    forwards: list[float] = []
    for samples in by_prompt(arm.measured).values():
        counts = [committed_of(sample, clipped=clipped) for sample in samples]
        committed.append(sum(count for count, _ in counts))
        forwards.append(sum(count for _, count in counts))
    kept = [(c, f) for c, f in zip(committed, forwards, strict=True) if f > 0]
    return known_ratio([c for c, _ in kept], [f for _, f in kept])


def committed_of(sample: Sample, *, clipped: bool) -> tuple[int, int]:
    """Return committed tokens and target forwards of a sample's decode."""
    counters, onset = sample["counters"], sample["loop_onset"]
    if clipped and onset is not None:
        steps = steps_before(sample, onset)
        return max(0, sum((sample["accepted_per_step"] or [])[:steps]) + steps - idle_refusals(sample)), steps
    committed = counters["steps"] - idle_refusals(sample) + counters["accepted_tokens"]
    return committed, counters["target_forwards"]


def identity(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield on how many prompts each candidate's tokens equal the baseline's, recomputed from raw tokens."""
    arms = arms_of(report, evidence)
    word = dtype_word(report)
    for place, candidate in enumerate(arms.candidates):
        if arms.baseline is not None:
            suffix = "" if place == 0 else f"_{candidate.name}"
            stops = _never_drafted(candidate) if report.kind == ACCEPTANCE else {}
            yield from _identity(candidate, arms.baseline, (word, suffix), stops)


def _never_drafted(arm: Arm) -> dict[Premise, str]:
    """Return why an arm's outputs say nothing of drafts; empty where it drafted."""
    if any(sample["counters"]["drafted_tokens"] for sample in arm.measured):
        return {}
    return {"outputs": f"no sample of {arm.name!r} drafted a token: its outputs are plain decoding's by being it"}


def dtype_word(report: Report) -> str:
    """Return the precision of a report as people write it."""
    dtype = str(report.body["config"].get("dtype", "?"))
    return DTYPE_WORDS.get(dtype, dtype)


def _identity(
    candidate: Arm, baseline: Arm, words: tuple[str, str], stops: Mapping[Premise, str]
) -> Iterator[ClaimDraft]:
    word, suffix = words
    same, prompts, tokens, worst = compare(candidate, baseline)
    if not prompts:
        return
    if same == prompts:
        wording = f"identical on these {prompts} prompts, {tokens} tokens, {word}"
        bound = 1.0 - 0.05 ** (1.0 / prompts)
    else:
        where, margin = worst
        said = "unknown" if margin is None else f"{margin:.3g}"
        wording = f"differs on {prompts - same} of {prompts} prompts, first at token {where}, "
        wording += f"top-2 margin there {said} as reported, {word}"
        bound = None
    yield ClaimDraft(
        id=f"identical_prompts{suffix}",
        role="secondary",
        value=float(same),
        unit="prompts",
        n=prompts,
        baseline=baseline.name,
        arms=(candidate.name, baseline.name),
        wording=wording if not suffix else f"{candidate.name}: {wording}",
        stops=stops,
        detail={
            "mismatch_rate_upper_95": bound,
            "summary": f"{same}/{prompts} prompts, {tokens} tokens, {word}" if same == prompts else wording,
        },
    )


def compare(candidate: Arm, baseline: Arm) -> tuple[int, int, int, tuple[int, float | None]]:
    """Return (identical prompts, prompts, baseline tokens, (first difference, margin there)), every repeat counted."""
    same = tokens = 0
    first: tuple[int, float | None] = (1 << 60, None)
    theirs, ours = by_prompt(baseline.measured), by_prompt(candidate.measured)
    common = [prompt for prompt in theirs if prompt in ours]
    for prompt in common:
        reference = theirs[prompt][0]["tokens"]
        tokens += len(reference)
        different = [(first_difference(reference, s["tokens"]), s) for s in ours[prompt]]
        places = [(place, s["top2_margin_at_divergence"]) for place, s in different if place is not None]
        same += not places
        for place in places:
            first = min(first, place, key=lambda item: item[0])
    return same, len(common), tokens, first


def throughput(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the baseline's decode rate; the primary claim of a report without a candidate.

    Alone in its turns it is the supervisor's, over launches. A baseline that takes turns with a candidate shares its
    caches and heat: its rate is the program's own word.
    """
    arms = arms_of(report, evidence)
    if arms.baseline is None:
        return
    groups = by_prompt(sample for arm in arms.reference for sample in arm.measured)
    tokens = [float(sum(max(s["output_tokens"] - 1, 0) for s in samples)) for samples in groups.values()]
    seconds = [float(sum(s["stages"]["decode_s"] for s in samples)) for samples in groups.values()]
    rate = known_ratio(tokens, seconds)
    if rate is None:
        return
    stamped = None if arms.candidate is not None else stamped_rate(report, evidence)
    if stamped is not None:
        yield replace(stamped, arms=tuple(arm.name for arm in arms.reference))
        return
    shown = figures.shown(rate.value, "tokens/s", rate.interval(CONFIDENCE))
    yield replace(
        ClaimDraft.of_ratio(
            "baseline_tokens_per_s",
            "secondary" if arms.candidate is not None else "primary",
            rate,
            f"native decoding {shown} 95 %, {rate.n} prompts",
        ),
        unit="tokens/s",
        arms=tuple(arm.name for arm in arms.reference),
    )


def memory(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the measured cache of the candidate beside the native one; in an interleaved report it informs only."""
    arms = arms_of(report, evidence)
    if arms.candidate is None or arms.baseline is None or not arms.candidate.measured or not arms.baseline.measured:
        return
    ours = statistics.median_low(sample["memory"]["kv_bytes"] for sample in arms.candidate.measured)
    theirs = statistics.median_low(sample["memory"]["kv_bytes"] for sample in arms.baseline.measured)
    extra = statistics.median_low((sample["memory"]["drafter_bytes"] or 0) for sample in arms.candidate.measured)
    shown = f"{ours / 1e6:.2f} MB KV measured after decode, median (native cache {theirs / 1e6:.2f} MB"
    shown += f", drafter {extra / 1e6:.2f} MB)" if extra else ")"
    yield ClaimDraft(
        id="kv_bytes",
        role="secondary",
        value=float(ours),
        unit="bytes",
        n=len(arms.candidate.measured),
        baseline=arms.baseline.name,
        arms=(arms.candidate.name, arms.baseline.name),
        wording=shown,
        detail={"summary": shown},
    )


def paired_answers(ours: Arm, theirs: Arm) -> tuple[int, int, int]:
    """Return how many prompts of both arms only the first answered correctly, only the second, and their number."""
    first, second = answers(ours), answers(theirs)
    common = [prompt for prompt in first if prompt in second]
    gained, lost = sum(first[p] and not second[p] for p in common), sum(second[p] and not first[p] for p in common)
    return gained, lost, len(common)


def native_right(ours: Arm, theirs: Arm) -> int:
    """Return how many prompts of both arms the second answered correctly."""
    first, second = answers(ours), answers(theirs)
    return sum(second[prompt] for prompt in first if prompt in second)


def answers(arm: Arm) -> dict[str, bool]:
    """Return by prompt whether every repeat was answered correctly, prompts with a known answer only."""
    return {
        prompt: all(bool(sample["correct"]) for sample in samples)
        for prompt, samples in by_prompt(arm.measured).items()
        if samples[0]["expected"] is not None
    }


def call_times(report: Report) -> Iterator[ClaimDraft]:
    """Yield mean and median seconds of every method an arm called, its bytes, and the round trips of its link.

    An arm of which nothing was answered before its samples were over has round trips alone.
    """
    for row in report.body["rows"]["rpcs"]:
        seconds, trips = row["seconds"], row["round_trips_s"]
        if seconds:
            sent, received = (row[side] / len(seconds) for side in ("bytes_sent", "bytes_received"))
            yield ClaimDraft(
                id=f"rpc_{row['arm']}_{row['method']}".lower(),
                role="secondary",
                value=statistics.fmean(seconds),
                unit="s",
                n=len(seconds),
                arms=(row["arm"],),
                wording=(
                    f"{row['arm']} {row['method']}: mean {statistics.fmean(seconds) * 1e3:.3f} ms, "
                    f"median {statistics.median(seconds) * 1e3:.3f} ms, {len(seconds)} calls, "
                    f"{sent:.0f} bytes sent and {received:.0f} received a call"
                ),
            )
        yield ClaimDraft(
            id=f"round_trip_{row['arm']}".lower(),
            role="secondary",
            value=statistics.median_low(trips),
            unit="s",
            n=len(trips),
            arms=(row["arm"],),
            wording=(
                f"{row['arm']}: an empty round trip takes {statistics.median_low(trips) * 1e3:.2f} ms in the median, "
                f"{max(trips) * 1e3:.2f} ms at most, {len(trips)} of them"
            ),
        )
