"""Turn report bytes into reports; whatever is wrong with them is a problem, never an exception.

Bounded before parsing by size and depth, and in how many problems one file may have.
Knows shapes, not meaning: consistency belongs to the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge import strictjson
from bridge.gate.interface import Report, ReportProblem
from bridge.gate.report_kinds import KINDS, SCHEMA_VERSION
from bridge.gate.reports import schema
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES

PROBLEMS_MAX_COUNT: Final = 8  # per report: enough to act on, too few to flood a verdict


def load(reports: Mapping[str, bytes]) -> tuple[tuple[Report, ...], dict[str, tuple[ReportProblem, ...]]]:
    """Return the reports in path order, and the problems of those that are none."""
    loaded: list[Report] = []
    problems: dict[str, tuple[ReportProblem, ...]] = {}
    for path in sorted(reports):
        value, found = _read(reports[path])
        if found:
            problems[path] = tuple(found)
        loaded.append(Report(path, reports[path], None if found else value))
    return tuple(loaded), problems


def _read(data: bytes) -> tuple[Any, list[ReportProblem]]:
    try:
        value = strictjson.decode(data, max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except strictjson.StrictJsonError as error:
        return None, [ReportProblem("G0-JSON", "", str(error))]
    except (MemoryError, RecursionError) as error:
        return None, [ReportProblem("G0-JSON", "", f"cannot be read within bounds: {type(error).__name__}")]
    found = list(_identity(value))
    if not found:
        found = [ReportProblem("G0-SCHEMA", *item) for item in schema.problems(value, at_most=PROBLEMS_MAX_COUNT)]
    return value, found


def _identity(value: Any) -> Iterator[ReportProblem]:
    if not isinstance(value, dict):
        yield ReportProblem(
            "G0-KIND", "", f"got a JSON {type(value).__name__}, expected an object with kind and schema_version"
        )
        return
    kind, version = value.get("kind"), value.get("schema_version")
    if not isinstance(kind, str) or kind not in KINDS:
        yield ReportProblem("G0-KIND", "/kind", f"got {str(kind)[:64]!r}, expected one of: {', '.join(sorted(KINDS))}")
    if type(version) is not int or version != SCHEMA_VERSION:
        newer = type(version) is int and version > SCHEMA_VERSION
        hint = "; this gate is older than the report: upgrade kakeya" if newer else ""
        yield ReportProblem("G0-KIND", "/schema_version", f"got {str(version)[:32]!r}, expected {SCHEMA_VERSION}{hint}")
