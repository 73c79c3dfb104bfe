"""Steps without a draft are said.

A candidate that mostly decodes plainly is a baseline under another name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule("G3-IDLE", severity="note", kinds=kinds.SAMPLED, remedy="Read the fallbacks beside the number.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    reasons: Counter[str] = Counter()
    for row in report.body["fallbacks"]:
        reasons[f"{row['component']}: {row['reason']}"] += row["count"]
    for arm in arms_of(report, evidence).all:
        lists = [sample["drafted_per_step"] for sample in arm.measured if sample["drafted_per_step"]]
        steps = sum(len(drafted) for drafted in lists)
        idle = sum(1 for drafted in lists for count in drafted if count == 0)
        if idle:
            why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3)) or "by the depth policy"
            yield Violation(f"{idle} of {steps} steps of arm {arm.name!r} drafted nothing: {why}", f"/arms/{arm.index}")
