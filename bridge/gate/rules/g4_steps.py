"""Counters of a sample follow from its steps, and its tokens from them.

A step commits its accepted tokens and one more; whoever changes a counter changes how many tokens there must be. Only a
step whose first row was refused (no finite logits, no token of the vocabulary) commits nothing, and is followed by one
without a draft; a refused later row costs the rest of its draft alone. A shadow draft, proposed beside plain decoding
to see whether it would have come true, is a call of the drafter without a verified token; only the controller makes
one, and reading it may cost a synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Sample, arms_of, expected_drafts, idle_refusals


@report_rule(
    "G4-STEPS", kinds=kinds.SAMPLED, remedy="Count where it happens: one entry per step, sums from the entries."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    config = report.body["config"]
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            check = _plain if sample["accepted_per_step"] is None else _speculative
            check = _unseen if arm.name in kinds.UNSEEN else check
            for message in check(sample, config):
                yield Violation(message, arm.pointer(sample))


def _unseen(sample: Sample, _config: Mapping[str, Any]) -> Iterator[str]:
    told = [name for name, count in sample["counters"].items() if count]
    told += [name for name in ("accepted_per_step", "drafted_per_step") if sample[name] is not None]
    if told:
        yield f"{', '.join(told)} of an arm that is seen from outside only"


def _plain(sample: Sample, _config: Mapping[str, Any]) -> Iterator[str]:
    counters = sample["counters"]
    for name in ("drafter_forwards", "drafted_tokens", "accepted_tokens", "guard_rejections", "shadow_drafts"):
        if counters.get(name):
            yield f"{name} is {counters[name]} in an arm that does not draft"
    if sample["drafted_per_step"] is not None:
        yield "drafted_per_step without accepted_per_step"
    steps = sample["output_tokens"] - 1
    if counters["steps"] != steps:
        yield f"{counters['steps']} steps for {sample['output_tokens']} tokens, expected {steps}"
    if not steps <= counters["target_forwards"] <= steps + 1:  # one forward may be queued ahead
        yield f"{counters['target_forwards']} target forwards for {steps} steps"
    yield from _synchronisations(counters)


def _speculative(sample: Sample, config: Mapping[str, Any]) -> Iterator[str]:
    counters, accepted, drafted = sample["counters"], sample["accepted_per_step"], sample["drafted_per_step"]
    if drafted is None or len(drafted) != len(accepted):
        yield "accepted_per_step and drafted_per_step have different lengths"
        return
    for name, got, wanted in (
        ("steps", counters["steps"], len(accepted)),
        ("accepted_tokens", counters["accepted_tokens"], sum(accepted)),
        ("drafted_tokens", counters["drafted_tokens"], sum(drafted)),
        ("target_forwards", counters["target_forwards"], len(accepted)),
    ):
        if got != wanted:
            yield f"{name} is {got}, the steps give {wanted}"
    if any(a > d for a, d in zip(accepted, drafted, strict=True)):
        yield "a step accepted more than was drafted"
    block = config.get("block_size")
    if block is not None and drafted and max(drafted) > block - 1:
        yield f"a step drafted {max(drafted)} tokens with a block of {block}"
    cut = sum(1 for a, d in zip(accepted, drafted, strict=True) if a < d)
    if counters["guard_rejections"] > cut:
        yield f"{counters['guard_rejections']} rows were refused, {cut} steps lost a part of their draft"
    committed = 1 + len(accepted) - idle_refusals(sample) + sum(accepted)
    surplus = committed - sample["output_tokens"]
    if not 0 <= surplus <= (accepted[-1] if accepted else 0):
        yield f"the steps commit {committed} tokens, {sample['output_tokens']} were emitted"
    expected = expected_drafts(sample, config)
    looks_up = _looks_up(config)
    if expected is not None:
        odd = [
            i
            for i, (d, e) in enumerate(zip(drafted, expected, strict=True))
            if d != e and not (d == 0 or (looks_up and d < e))
        ]
        if odd:
            yield f"step {odd[0]} drafted {drafted[odd[0]]} tokens, the depth and the budget say {expected[odd[0]]}"
    yield from _calls(counters, drafted, config)
    yield from _synchronisations(counters)


def _calls(counters: Mapping[str, int], drafted: list[int], config: Mapping[str, Any]) -> Iterator[str]:
    """Compare the drafter's forwards with the steps that drafted and the shadow drafts beside those that did not."""
    drafting, shadows, forwards = len(drafted) - drafted.count(0), counters.get("shadow_drafts", 0), "drafter forwards"
    if shadows and (config.get("depth") or {}).get("policy") != "controller":
        yield f"{shadows} shadow drafts under a policy that asks for none"
    if shadows > drafted.count(0):
        yield f"{shadows} shadow drafts beside {drafted.count(0)} steps without a draft"
    if not _looks_up(config) and counters["drafter_forwards"] != drafting + shadows:
        yield f"{counters['drafter_forwards']} {forwards} for {drafting} steps with a draft, {shadows} shadow drafts"
    if counters["drafter_forwards"] > counters["steps"]:
        yield f"{counters['drafter_forwards']} {forwards} in {counters['steps']} steps"


def _looks_up(config: Mapping[str, Any]) -> bool:
    """Say whether the drafter drafts what it finds, and calls no model."""
    return bool((config.get("drafter") or {}).get("format") == "ngram")


def _synchronisations(counters: Mapping[str, int]) -> Iterator[str]:
    least = counters["steps"] + 1
    if not least <= counters["host_syncs"] <= least + counters.get("shadow_drafts", 0):
        yield f"{counters['host_syncs']} host synchronisations for {counters['steps']} steps and the prefill"
