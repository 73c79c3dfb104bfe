"""A report is of the kind its preset declares.

The rules follow the kind, so a report that may choose its kind may choose its rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule("G1-KIND", remedy="Write the kind of report the preset declares for this path.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    declared = {output.path: output.kind for output in evidence.spec.outputs} if evidence.spec else {}
    wanted = declared.get(report.path)
    if wanted is not None and report.kind != wanted:
        yield Violation(f"got kind {report.kind!r}, the preset declares {wanted!r}", "/kind")
