"""Measured bytes are plausible: more than nothing, the peak no less than the rest, equal work in equal bytes.

Baseline and control run the same code on the same prompts; their caches hold the same bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arm, Sample, arms_of


@report_rule(
    "G4-MEMORY", kinds=kinds.SAMPLED, remedy="Read bytes from the real buffers after at least one decode step."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    seen: dict[tuple[object, ...], int] = {}
    for arm in arms.all:
        yield from _gross(arm)
        for sample in arm.samples:
            memory = sample["memory"]
            if arm.name in kinds.UNSEEN:
                if any(memory.values()):
                    yield Violation("bytes of an arm that is seen from outside only", arm.pointer(sample))
                continue
            if memory["kv_bytes"] < 1:
                yield Violation("kv_bytes is 0 after decoding", arm.pointer(sample))
            if memory["kv_bytes_peak"] is not None and memory["kv_bytes_peak"] < memory["kv_bytes"]:
                yield Violation("kv_bytes_peak is below kv_bytes", arm.pointer(sample))
            active = memory["allocator_active_bytes"]
            if active is not None and active < memory["kv_bytes"] + (memory["drafter_bytes"] or 0):
                yield Violation("the allocator holds less than the buffers measured", arm.pointer(sample))
            yield from _drafter(arm, sample)
            for name in ("kv_bytes", "kv_bytes_peak", "drafter_bytes"):
                if memory[name] is None:
                    continue
                # Baseline and control are one code; every candidate is a cache of its own.
                who = arm.name if arm.role == "candidate" else arm.code_path
                key = (name, who, sample["prompt_tokens"], sample["output_tokens"], _last(sample))
                if seen.setdefault(key, memory[name]) != memory[name]:
                    yield Violation(
                        f"{name} is {memory[name]}, the same code held {seen[key]} for as many tokens",
                        arm.pointer(sample),
                    )


def _gross(arm: Arm) -> Iterator[Violation]:
    """Yield samples whose bytes are far from what the arm holds per token."""
    for name in ("kv_bytes", "kv_bytes_peak", "drafter_bytes", "allocator_active_bytes"):
        held = [(s["memory"][name], s) for s in arm.samples if s["memory"][name]]
        if len(held) < 4:
            continue
        middle = statistics.median(count for count, _ in held)
        for count, sample in held:
            rows = sample["prompt_tokens"] + sample["output_tokens"]
            usual = statistics.median(s["prompt_tokens"] + s["output_tokens"] for _, s in held)
            if not 0.55 * min(1.0, rows / usual) <= count / middle <= 1.8 * max(1.0, rows / usual):
                yield Violation(f"{name} is {count}, the arm's median {middle:.0f}", arm.pointer(sample))


def _last(sample: Sample) -> object:
    """Return what else decides a buffer's length: the rows of the last block."""
    steps = sample["drafted_per_step"]
    return None if steps is None else tuple(steps[-2:] + sample["accepted_per_step"][-2:])


def _drafter(arm: Arm, sample: Sample) -> Iterator[Violation]:
    drafts = sample["accepted_per_step"] is not None
    if not drafts and sample["memory"]["drafter_bytes"] is not None:
        yield Violation("drafter_bytes in an arm that does not draft", arm.pointer(sample))
