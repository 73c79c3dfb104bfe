"""Rules on the format of a report: strict JSON, a known kind, its schema."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule


@rule("G0-JSON", "bound", remedy="Write the report with a JSON library, once, without NaN; check its size and nesting.")
def require_strict_json(evidence: Evidence) -> Iterator[Violation]:
    """A report is strict JSON within the bounds on size and depth.

    A duplicate key hides a value, NaN passes every comparison, and a file too deep or too large to read is a way to
    stop the judge. Such a file is refused by itself; the other reports are judged all the same.
    """
    return _loading_problems(evidence, "G0-JSON")


@rule(
    "G0-KIND",
    "bound",
    remedy="Use a kind and schema_version this gate knows: `kakeya-mac gate rules`; upgrade for newer ones.",
)
def require_known_kind(evidence: Evidence) -> Iterator[Violation]:
    """A report names a known kind and the current schema version.

    What the gate does not know it cannot judge; an unknown kind that passes is a way around every other rule.
    """
    return _loading_problems(evidence, "G0-KIND")


@rule(
    "G0-SCHEMA",
    "bound",
    remedy="Write the report with the one builder of the engine; the pointer names the offending field.",
)
def require_schema(evidence: Evidence) -> Iterator[Violation]:
    """A report has exactly the fields of its kind's schema, of the right types.

    An absent field is a missing measurement and an unknown one is a number nobody checks.
    """
    return _loading_problems(evidence, "G0-SCHEMA")


def _loading_problems(evidence: Evidence, code: str) -> Iterator[Violation]:
    for path, problems in evidence.problems.items():
        for problem in problems:
            if problem.code == code:
                yield Violation(problem.message, problem.where, path)
