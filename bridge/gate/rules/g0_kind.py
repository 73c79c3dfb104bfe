"""A report names a known kind and the current schema version.

What the gate does not know it cannot judge; an unknown kind that passes is a way around every other rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule


@rule(
    "G0-KIND", remedy="Use a kind and schema_version this gate knows: `kakeya-mac gate rules`; upgrade for newer ones."
)
def _look(evidence: Evidence) -> Iterator[Violation]:
    for path, problems in evidence.problems.items():
        for problem in problems:
            if problem.code == "G0-KIND":
                yield Violation(problem.message, problem.where, path)
