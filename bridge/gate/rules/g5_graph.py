"""Both ways of evaluating were timed often enough.

A mean of two blocks is their mean; the probe ends at a time limit, so somebody must count what it timed. No clock gives
every block the same time, and no machine computes one in less than its multiplications take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.rules.g5_plausible import forward_rate, most_flops


@report_rule(
    "G5-GRAPH", severity="not_citable", kinds=(kinds.FUSED_GRAPH_PROBE,), remedy="Raise --blocks or --limit-s."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    least = int(evidence.profile["cost_repeats_min"])
    counts = Counter(block["mode"] for block in report.body["rows"]["blocks"] if not block["is_warmup"])
    for mode in ("two_evaluations", "one_graph"):
        if counts[mode] < least:
            yield Violation(f"{counts[mode]} blocks of {mode}, at least {least} are asked", "/rows/blocks")
        seconds = [b["eval_s"] for b in report.body["rows"]["blocks"] if b["mode"] == mode and not b["is_warmup"]]
        if len(seconds) > 1 and min(seconds) == max(seconds):
            yield Violation(
                f"{len(seconds)} blocks of {mode} took {seconds[0]!r} s each: no clock says that",
                "/rows/blocks",
                severity="reject",
            )
        if seconds and forward_rate(report, evidence, 1, min(seconds)) > most_flops(report, evidence):
            yield Violation(
                f"a block of {mode} in {min(seconds):.2e} s is beyond this machine", "/rows/blocks", severity="reject"
            )
