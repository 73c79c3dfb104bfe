"""A report is strict JSON within the bounds on size and depth.

A duplicate key hides a value, NaN passes every comparison, and a file too deep or too large to read is a way to
stop the judge. Such a file is refused by itself; the other reports are judged all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule


@rule("G0-JSON", remedy="Write the report with a JSON library, once, without NaN; check its size and nesting.")
def _look(evidence: Evidence) -> Iterator[Violation]:
    for path, problems in evidence.problems.items():
        for problem in problems:
            if problem.code == "G0-JSON":
                yield Violation(problem.message, problem.where, path)
