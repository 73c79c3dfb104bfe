"""The run left exactly the declared files.

A second report is a choice of which one to show.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule("G1-EXTRA", remedy="Declare the file in the preset, or delete it before the run ends.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.spec is None:
        return Skip("no job spec")
    declared = {output.path for output in evidence.spec.outputs}
    return (
        Violation(f"{path!r} is not declared by the preset", report=path)
        for path in sorted(set(evidence.files) - declared)
    )
