"""Sample rows are distinct, name themselves correctly, and every arm has the same prompts.

A row that occurs twice counts twice; a prompt that only one arm met is a choice. The warm-up that was counted made the
seed's 0.97x a 1.27x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arm, Sample, arms_of


@report_rule("G4-ROWS", kinds=kinds.SAMPLED, remedy="Keep every row exactly as it was measured, once.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence).all
    ids = Counter(sample["id"] for arm in arms for sample in arm.samples)
    for name, count in ids.items():
        if count > 1:
            yield Violation(f"sample {name!r} occurs {count} times")
    for arm in arms:
        for sample in arm.samples:
            wanted = f"{sample['launch']}/{sample['order_index']}/{arm.name}/{sample['prompt_id']}"
            if sample["id"] != wanted:
                yield Violation(f"id {sample['id']!r}, its own fields say {wanted!r}", arm.pointer(sample))
        places = [(sample["launch"], sample["order_index"]) for sample in arm.samples]
        if places != sorted(places):
            yield Violation("samples are not in running order", f"/arms/{arm.index}/samples")
    yield from _prompts(arms)
    if report.kind in kinds.SAME_PROMPTS:
        yield from _sides(arms)


def _prompts(arms: tuple[Arm, ...]) -> Iterator[Violation]:
    """Yield prompts that are not the same thing everywhere."""
    seen: dict[str, tuple[Any, Sample]] = {}
    digests: dict[str, str] = {}
    for arm in arms:
        for sample in arm.samples:
            facts = tuple(sample[name] for name in ("prompt_digest", "prompt_tokens", "kind", "expected", "is_warmup"))
            known = seen.setdefault(sample["prompt_id"], (facts, sample))[0]
            if known != facts:
                name = sample["prompt_id"]
                yield Violation(
                    f"prompt {name!r} is {facts[1:]} here, {known[1:]} elsewhere, or has another digest",
                    arm.pointer(sample),
                )
            if digests.setdefault(sample["prompt_digest"], sample["prompt_id"]) != sample["prompt_id"]:
                yield Violation(
                    f"prompts {digests[sample['prompt_digest']]!r} and {sample['prompt_id']!r} are the same tokens",
                    arm.pointer(sample),
                )


def _sides(arms: tuple[Arm, ...]) -> Iterator[Violation]:
    """Yield arms that met other prompts than the first arm."""
    if not arms:
        return
    rows = [Counter((s["launch"], s["prompt_id"], s["is_warmup"]) for s in arm.samples) for arm in arms]
    for arm, row in zip(arms[1:], rows[1:], strict=True):
        for key in sorted((row - rows[0]) + (rows[0] - row))[:4]:
            yield Violation(
                f"prompt {key[1]!r} of launch {key[0]} is not in every arm equally often", f"/arms/{arm.index}"
            )
