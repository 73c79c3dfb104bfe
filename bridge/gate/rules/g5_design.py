"""The measurement has the profile's design: launches, prompts, arms, warm-ups, distinct and disjoint prompts.

False-grant rate and power were studied for exactly this design; another one has other rates. Prompts that differ in a
token and get one and the same answer are one prompt, so most answers differ. A study of acceptance
counts tokens and times nothing: it needs as many distinct prompts and warm-ups on every arm, no launches, no control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arms, arms_of, within


@report_rule(
    "G5-DESIGN",
    severity="not_citable",
    kinds=(*kinds.INTERLEAVED, kinds.ACCEPTANCE),
    remedy="Run with `--profile claim`, unchanged launches.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms, profile = arms_of(report, evidence), evidence.profile
    if profile["name"] == "smoke":
        return
    if report.kind == kinds.COMMIT_COMPARISON:  # a pass is a whole design; the second one repeats the first
        for launches in report.body["rows"]["passes"]:
            for message in _design(within(arms, set(launches)), profile, report.kind):
                yield Violation(message, "/arms")
        return
    found = _alone(arms, profile) if report.kind == kinds.ACCEPTANCE else _design(arms, profile, report.kind or "")
    for message in found:
        yield Violation(message, "/arms")


def _alone(arms: Arms, profile: Mapping[str, Any]) -> Iterator[str]:
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


def _design(arms: Arms, profile: Mapping[str, Any], kind: str) -> Iterator[str]:
    launches = sorted({sample["launch"] for arm in arms.all for sample in arm.measured})
    if len(launches) != profile["launches"]:
        yield f"{len(launches)} launches, the design has {profile['launches']}"
    if arms.control is None:
        yield "no control: without the baseline measured twice nobody knows the noise"
    if len(arms.all) > profile["arms"]:
        yield f"{len(arms.all)} arms, the design has {profile['arms']}"
    for arm in arms.all:
        prompts = {sample["prompt_digest"] for sample in arm.measured}
        warm = Counter(sample["launch"] for sample in arm.samples if sample["is_warmup"])
        if len(prompts) < profile["prompts_min_count"] or len(arm.measured) != len(prompts):
            wanted = f"one of each of {profile['prompts_min_count']}"
            yield f"arm {arm.name!r} has {len(arm.measured)} samples of {len(prompts)} prompts, expected {wanted}"
        per_launch = Counter(sample["launch"] for sample in arm.measured)
        if kind == kinds.CODE_THROUGHPUT and set(per_launch.values()) != {profile["prompts_per_launch"]}:
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
