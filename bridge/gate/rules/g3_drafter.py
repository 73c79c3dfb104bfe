"""Every candidate sample ran the drafter and the target, or says how often it did not and why.

"Fused" with zero blocks run was reported as a speed-up. Liveness is calls, not acceptances: a drafter whose drafts
are all rejected was alive.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G3-DRAFTER", kinds=kinds.SAMPLED, remedy="Count calls where they happen; count fallbacks with their reason."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    excused = {row["sample"] for row in report.body["fallbacks"] if row["component"] == "drafter"}
    for arm in arms_of(report, evidence).all:
        if arm.name in kinds.UNSEEN:
            continue
        for sample in arm.samples:
            counters = sample["counters"]
            if arm.name in kinds.DRAFTING and sample["accepted_per_step"] is None:
                yield Violation("a drafting arm without a step list", arm.pointer(sample))
            elif arm.name in kinds.PLAIN and sample["accepted_per_step"] is not None:
                yield Violation("the baseline has a list of accepted drafts", arm.pointer(sample))
            if sample["output_tokens"] > 1 and not counters["target_forwards"]:
                yield Violation("the target was never called", arm.pointer(sample))
            if sample["accepted_per_step"] is None or sample["output_tokens"] == 1:
                continue
            called = counters["drafter_forwards"] or counters["drafted_tokens"]
            if not called and sample["id"] not in excused:
                yield Violation("the drafter was never called and no fallback says why", arm.pointer(sample))
