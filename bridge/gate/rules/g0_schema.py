"""A report has exactly the fields of its kind's schema, of the right types.

An absent field is a missing measurement and an unknown one is a number nobody checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule


@rule("G0-SCHEMA", remedy="Write the report with the one builder of the engine; the pointer names the offending field.")
def _look(evidence: Evidence) -> Iterator[Violation]:
    for path, problems in evidence.problems.items():
        for problem in problems:
            if problem.code == "G0-SCHEMA":
                yield Violation(problem.message, problem.where, path)
