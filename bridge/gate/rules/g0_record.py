"""The runner's record and the job spec are there together, well-formed.

One without the other cannot be compared. Without both, a report file can be checked but nobody saw it being made.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule


@rule("G0-RECORD", remedy="Keep run.json and spec.json as the runner wrote them, together.")
def _look(evidence: Evidence) -> Iterator[Violation]:
    if (evidence.record is None) != (evidence.spec is None):
        absent = "RunRecord" if evidence.record is None else "JobSpec"
        yield Violation(f"the {absent} is absent or unreadable, the other one is there")
    elif evidence.record is None:
        yield Violation("no RunRecord: nobody but the report's author saw this run", severity="not_citable")
