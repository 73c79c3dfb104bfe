"""Rules on the design and the noise of interleaved measurements."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from bridge.gate.facts.launch_series import Series, series_of
from bridge.gate.facts.samples import Arms, arms_of, within
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import (
    ACCEPTANCE,
    BOUNDED_RECALL,
    CODE_THROUGHPUT,
    COMMIT_COMPARISON,
    INTERLEAVED,
    ONE_EACH,
    PAIRED,
    SAMPLED,
    STUDIES,
    UNSEEN,
)
from bridge.gate.rule import report_rule
from bridge.gate.stats.trend import Trend, line
from bridge.run.stop_rule import turns_of


def _prompts_asked(evidence: Evidence) -> int | None:
    """Return how many prompts the commands of a run ask for, None of a bare report: where none says, the profile's.

    What a nonce draws has an order, so that a count that suits is one of many tries.
    """
    if evidence.spec is None:
        return None
    for command in evidence.spec.commands:
        for option, value in pairwise(command.argv):
            if option == "--prompts" and value.isdecimal():
                return int(value)
    return int(evidence.profile["prompts_min_count"])


@report_rule(
    "G5-DESIGN",
    "inputs",
    severity="violation",
    kinds=(*SAMPLED, *STUDIES),
    remedy="Run with `--profile claim`, unchanged launches.",
)
def require_design(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The measurement has the claim's design: launches, prompts, arms, warm-ups, distinct and disjoint prompts.

    False-grant rate and power were studied for exactly this design; another one has other rates. Prompts that differ in
    a token and get one and the same answer are one prompt, so most answers differ. A study of acceptance counts tokens
    and times nothing: it needs as many distinct prompts and warm-ups on every arm, no launches, no control.
    """
    arms, profile = arms_of(report, evidence), evidence.profile
    if profile["name"] == "smoke":
        yield Violation("a smoke run is a first look: few prompts and launches carry no claim", "/run/profile")
        return
    if report.kind == BOUNDED_RECALL:
        asked = {row["prompt_digest"] for row in report.body["rows"]["answers"]}
        wanted = _prompts_asked(evidence)
        if len(asked) < profile["prompts_min_count"] or (wanted is not None and len(asked) != wanted):
            said = f"{len(asked)} prompts, expected {wanted or profile['prompts_min_count']}"
            yield Violation(said, "/rows/answers")
    if report.kind not in (*INTERLEAVED, ACCEPTANCE):
        return
    series = series_of(report, evidence)
    if (
        report.kind == COMMIT_COMPARISON and series is None
    ):  # a pass is a whole design; the second one repeats the first
        for launches in report.body["rows"]["passes"]:
            yield from _paired_design(within(arms, set(launches)), profile, report.kind)
    elif report.kind == ACCEPTANCE:
        yield from (Violation(message, "/arms") for message in _acceptance_design(arms, profile))
    elif series is not None:  # how many launches there have to be is said by G5-LAUNCHES
        yield from (Violation(message, "/arms") for message in _series_design(arms, profile))
    else:
        yield from _paired_design(arms, profile, report.kind or "")


def _acceptance_design(arms: Arms, profile: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a study of acceptance lacks: it counts tokens, so it needs prompts, and no launches or control."""
    if arms.candidate is None:
        yield "no arm drafts: there is nothing to accept"
    for arm in arms.all:
        prompts = {sample["prompt_digest"] for sample in arm.measured}
        if len(prompts) < profile["prompts_min_count"] or len(arm.measured) != len(prompts):
            wanted = f"one of each of {profile['prompts_min_count']}"
            yield f"arm {arm.name!r} has {len(arm.measured)} samples of {len(prompts)} prompts, expected {wanted}"
        warm = sum(1 for sample in arm.samples if sample["is_warmup"])
        if warm < profile["warmups_per_arm_and_launch"]:
            yield f"arm {arm.name!r} has {warm} warm-ups, expected {profile['warmups_per_arm_and_launch']}"


def _series_design(arms: Arms, profile: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a series of launches lacks: distinct prompts with distinct answers, and warm-ups in each."""
    launches = {sample["launch"] for arm in arms.all for sample in arm.measured}
    for arm in arms.all:
        answers = {sample["prompt_digest"]: tuple(sample["tokens"]) for sample in arm.measured}
        if len(answers) < profile["prompts_min_count"]:
            yield f"arm {arm.name!r} met {len(answers)} prompts, expected {profile['prompts_min_count']}"
        if 2 * len(set(answers.values())) < len(answers):
            yield f"arm {arm.name!r} gave {len(set(answers.values()))} different answers to {len(answers)} prompts"
        warm = Counter(sample["launch"] for sample in arm.samples if sample["is_warmup"])
        short = [launch for launch in sorted(launches) if warm[launch] < profile["warmups_per_arm_and_launch"]]
        if short:
            yield f"arm {arm.name!r} has {warm[short[0]]} warm-ups in launch {short[0]}"


def _paired_design(arms: Arms, profile: Mapping[str, Any], kind: str) -> Iterator[Violation]:
    for message in _launch_design(arms, profile, kind):
        yield Violation(message, "/arms", premise="ratio")
    for message in _prompt_design(arms, profile, kind):
        yield Violation(message, "/arms")


def _launch_design(arms: Arms, profile: Mapping[str, Any], kind: str) -> Iterator[str]:
    launches = {sample["launch"] for arm in arms.all for sample in arm.measured}
    if len(launches) != profile["launches"]:
        yield f"{len(launches)} launches, the design has {profile['launches']}"
    if arms.control is None:
        yield "no control: without the baseline measured twice nobody knows the noise"
    # Candidates of a kind with several answer one question each; the first is the primary claim.
    count = len(arms.all) if kind in ONE_EACH else len(arms.all) - len(arms.candidates[1:])
    if count > profile["arms"]:
        yield f"{count} arms, the design has {profile['arms']}"


def _prompt_design(arms: Arms, profile: Mapping[str, Any], kind: str) -> Iterator[str]:
    launches = sorted({sample["launch"] for arm in arms.all for sample in arm.measured})
    for arm in arms.all:
        prompts = {sample["prompt_digest"] for sample in arm.measured}
        warm = Counter(sample["launch"] for sample in arm.samples if sample["is_warmup"])
        if len(prompts) < profile["prompts_min_count"] or len(arm.measured) != len(prompts):
            wanted = f"one of each of {profile['prompts_min_count']}"
            yield f"arm {arm.name!r} has {len(arm.measured)} samples of {len(prompts)} prompts, expected {wanted}"
        per_launch = Counter(sample["launch"] for sample in arm.measured)
        if kind == CODE_THROUGHPUT and set(per_launch.values()) != {profile["prompts_per_launch"]}:
            wanted = profile["prompts_per_launch"]
            yield f"arm {arm.name!r} has {sorted(per_launch.values())} prompts per launch, expected {wanted}"
        short = [launch for launch in launches if warm[launch] < profile["warmups_per_arm_and_launch"]]
        if short:
            yield f"arm {arm.name!r} has {warm[short[0]]} warm-ups in launch {short[0]}"
        answers = {tuple(sample["tokens"]) for sample in arm.measured}
        if 2 * len(answers) < len(arm.measured):
            yield f"arm {arm.name!r} gave {len(answers)} different answers to {len(arm.measured)} prompts: equal work"
        if prompts & {sample["prompt_digest"] for sample in arm.samples if sample["is_warmup"]}:
            yield f"arm {arm.name!r} measured a prompt it had warmed up with"


def baseline_trend(arms: Arms) -> Trend | None:
    """Return the line through log seconds per token of baseline and control, in running order from 0 to 1."""
    placed = sorted(
        (s["launch"], s["order_index"], s["stages"]["decode_s"] / (s["output_tokens"] - 1))
        for arm in arms.reference
        for s in arm.measured
        if s["output_tokens"] > 1 and s["stages"]["decode_s"] > 0
    )
    if len(placed) < 6:
        return None
    span = len(placed) - 1
    return line([index / span for index in range(len(placed))], [math.log(seconds) for *_, seconds in placed])


def _short_samples(series: Series, least_s: float) -> Iterator[Violation]:
    """Yield an arm whose samples are shorter: where one prompt is soon decoded, a sample is several of them."""
    for arm in series.plan.arms:
        spent: dict[tuple[int, int], float] = {}
        for launch in series.counted:
            for turn in turns_of(series.plan, launch, arm, "decode"):
                key = (launch.number, turn.sample)
                spent[key] = spent.get(key, 0.0) + turn.done_s - turn.go_s
        middle_s = statistics.median(spent.values()) if spent else 0.0
        if middle_s < least_s:
            yield Violation(
                f"a sample of arm {arm!r} decodes for {middle_s:.3f} s (median of {len(spent)}), expected {least_s} s",
                "launches",
                arms=(arm,),
            )


@report_rule(
    "G5-DURATION",
    "times",
    severity="violation",
    kinds=PAIRED,
    remedy="Raise the token budget, on every arm, before measuring.",
)
def require_decode_time(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Every measured sample decodes long enough to be timed.

    At 64 tokens of a small model identical work differed 2.7-fold, at 0.2 s and more less than 1.5-fold.
    """
    least_s = float(evidence.profile["decode_min_s"])
    series = series_of(report, evidence)
    if series is not None:
        yield from _short_samples(series, least_s)
        return
    for arm in arms_of(report, evidence).all:
        if arm.name in UNSEEN:  # may hold its first token back: only its total time says something
            continue
        short = [sample for sample in arm.measured if sample["stages"]["decode_s"] < least_s]
        if short:
            shortest = min(short, key=lambda sample: float(sample["stages"]["decode_s"]))
            yield Violation(
                f"{len(short)} samples of arm {arm.name!r} decode for less than {least_s} s, the shortest for "
                f"{shortest['stages']['decode_s']:.3f} s",
                arm.pointer(shortest),
                arms=(arm.name,),
            )
