"""Candidate and baseline are two computations, baseline and control are one.

A baseline compared with itself gave 2.58x; a report whose two arms were one computation passed the seed's gate at
2.18x, because a flag said so. Here the code path and the counters say it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G3-SELF",
    kinds=(*kinds.INTERLEAVED, kinds.KV_QUANTISATION),
    remedy="Compare the candidate's own code with the library's own decoding.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    baseline, control, candidate = arms.baseline, arms.control, arms.candidate
    if baseline is not None and control is not None and baseline.code_path != control.code_path:
        yield Violation(
            f"the control runs {control.code_path}, the baseline {baseline.code_path}", f"/arms/{control.index}"
        )
    if baseline is None or candidate is None or report.kind in {kinds.COMMIT_COMPARISON, kinds.REQUEST_CODE}:
        return
    for arm in arms.all:
        if arm.role == "candidate" and arm.code_path == baseline.code_path:
            yield Violation(f"both arms run {arm.code_path}", f"/arms/{arm.index}/code_path")
    if report.kind == kinds.KV_QUANTISATION:
        return  # its arms differ by what they store, and none of them drafts
    measured = candidate.measured
    if measured and not any(sample["counters"]["drafted_tokens"] for sample in measured):
        yield Violation(
            "no sample of the candidate drafted a token: both arms are the same computation", f"/arms/{candidate.index}"
        )
