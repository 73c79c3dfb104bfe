"""Reports were created in this run's directory, after its start.

The runner looked: a file that is older than the run was not measured by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule("G1-FRESH", remedy="Let the workload write its report itself, in the directory it is given.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None:
        return Skip("no RunRecord")
    return (
        Violation("the file is older than the run", report=output.path)
        for output in evidence.record.outputs
        if not output.after_start
    )
