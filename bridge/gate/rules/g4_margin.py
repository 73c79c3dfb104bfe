"""A sample carries the target's top-2 margin exactly when its tokens differ from the baseline's.

A difference without a margin could be a near-tie or a wrong model.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of, by_prompt


@report_rule(
    "G4-MARGIN", kinds=kinds.INTERLEAVED, remedy="Record top2_margin_at_divergence where outputs first differ."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    if arms.baseline is None:
        return
    reference = by_prompt(arms.baseline.samples)
    for arm in arms.all:
        for sample in arm.samples:
            others = reference.get(sample["prompt_id"])
            if not others:
                continue
            differs = sample["tokens"] != others[0]["tokens"]
            if differs != (sample["top2_margin_at_divergence"] is not None):
                said = "differs" if differs else "does not differ"
                yield Violation(
                    f"{said} from the baseline, top2_margin_at_divergence is {sample['top2_margin_at_divergence']}",
                    arm.pointer(sample),
                )
