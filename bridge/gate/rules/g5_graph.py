"""Both ways of evaluating were timed often enough.

A mean of two blocks is their mean; the probe ends at a time limit, so somebody must count what it timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G5-GRAPH", severity="not_citable", kinds=(kinds.FUSED_GRAPH_PROBE,), remedy="Raise --blocks or --limit-s."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    least = int(evidence.profile["cost_repeats_min"])
    counts = Counter(block["mode"] for block in report.body["rows"]["blocks"] if not block["is_warmup"])
    for mode in ("two_evaluations", "one_graph"):
        if counts[mode] < least:
            yield Violation(f"{counts[mode]} blocks of {mode}, at least {least} are asked", "/rows/blocks")
