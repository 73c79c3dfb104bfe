"""Calls are listed once per arm and method, of arms that exist, and took no longer than the run.

A distributed arm without calls decoded locally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G4-RPCS",
    kinds=(kinds.DISTRIBUTED_E2E, kinds.DISTRIBUTED_BENCH),
    remedy="Count every call where it is made, per arm.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    rows, arms = report.body["rows"]["rpcs"], arms_of(report, evidence)
    candidates = {arm.name for arm in arms.all if arm.role == "candidate"}
    for key, count in Counter((row["arm"], row["method"]) for row in rows).items():
        if count > 1:
            yield Violation(f"{key} occurs {count} times", "/rows/rpcs")
    called = {row["arm"] for row in rows}
    for name in sorted(called - candidates):
        yield Violation(f"calls of {name!r}, which is no distributed arm", "/rows/rpcs")
    silent = {name for name in candidates if "in-process" not in name} - called
    for name in sorted(silent):
        yield Violation(f"arm {name!r} made no call", "/rows/rpcs")
    for name in sorted(called & candidates):
        arm = next(one for one in arms.all if one.name == name)
        spent_s = sum(sum(row["seconds"]) for row in rows if row["arm"] == name)
        total_s = sum(sample["stages"]["total_s"] for sample in arm.samples)
        if spent_s > 4 * total_s + 0.1:  # calls may overlap: one drafts ahead while another restores
            yield Violation(f"{spent_s:.3f} s of calls in {total_s:.3f} s of samples of {name!r}", "/rows/rpcs")
