"""No warm-up prompt is measured.

The seed's 1.27x contained the warm-up prompt; without it, it was 0.97x.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule("G5-WARMUP", kinds=kinds.SAMPLED, remedy="Warm up on prompts of their own, in every arm and launch.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence).all
    warm = {s["prompt_digest"]: s["prompt_id"] for arm in arms for s in arm.samples if s["is_warmup"]}
    for arm in arms:
        for sample in arm.measured:
            if sample["prompt_digest"] in warm:
                yield Violation(f"prompt {sample['prompt_id']!r} warmed up and was measured", arm.pointer(sample))
        if report.kind in kinds.INTERLEAVED:
            cold = {s["launch"] for s in arm.measured} - {s["launch"] for s in arm.samples if s["is_warmup"]}
            if cold:
                yield Violation(f"arm {arm.name!r} was not warmed up in launch {min(cold)}", f"/arms/{arm.index}")
