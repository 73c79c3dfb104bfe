"""Every required report is there; zero reports fail.

The seed's gate passed a run which wrote nothing: there was nothing to object to.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule


@rule("G1-DECLARED", remedy="Write every report the preset declares below KAKEYA_OUT, under its declared name.")
def _look(evidence: Evidence) -> Iterator[Violation]:
    if evidence.spec is None:
        if not evidence.reports:
            yield Violation("no report at all")
        return
    for output in evidence.spec.outputs:
        if output.required and output.path not in evidence.files:
            yield Violation(f"the declared {output.kind} report is absent", report=output.path)
    if not evidence.reports:
        yield Violation("the run left no report")
