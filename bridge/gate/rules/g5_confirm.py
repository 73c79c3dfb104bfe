"""A commit is called slower only after a second pass on other launches said so too.

Gates that fail on one noisy pass get switched off; of six reruns of one pull request no two alerts agreed.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.claims.commits import ratio_of
from bridge.gate.claims.speed import CONFIDENCE
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G5-CONFIRM",
    kinds=(kinds.COMMIT_COMPARISON,),
    remedy="Run a second pass of the same launches when the first is slow.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms, passes = arms_of(report, evidence), report.body["rows"]["passes"]
    listed = [launch for launches in passes for launch in launches]
    launches = sorted({sample["launch"] for arm in arms.all for sample in arm.measured})
    if sorted(listed) != launches:
        yield Violation(f"passes list launches {listed}, the samples have {launches}", "/rows/passes")
        return
    if len(passes) == 2 and len(passes[0]) != len(passes[1]):
        yield Violation("the passes have different numbers of launches", "/rows/passes")
    if report.body["config"]["base_commit"] == report.body["config"]["head_commit"]:
        yield Violation("base and head are the same commit", "/config/head_commit")
    first = ratio_of(arms, set(passes[0]))
    margin = float(report.body["config"]["slower_margin"])
    slow = first is not None and first.interval(CONFIDENCE)[1] < 1.0 - margin
    if slow and len(passes) == 1:
        yield Violation("the first pass is slow and was not confirmed", "/rows/passes", severity="not_citable")
    if not slow and len(passes) == 2:
        yield Violation("a second pass although the first was not slow", "/rows/passes", severity="not_citable")
