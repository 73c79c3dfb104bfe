"""The reports of an owner's own program: a file a repeat, strict JSON of the schema that the workload declares.

All repeats of a run are one report to the rules; its value lists them. Knows shapes, not meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from bridge import strictjson
from bridge.gate.declared.views import StatedReport
from bridge.gate.interface import Report, ReportProblem
from bridge.gate.reports.uniqueness import unique_items
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.records.jobspec import JobSpec
from bridge.records.workload import KIND, REPORT_FILE, WorkloadDefinition

NAME: Final = "repeats"
STANDARD: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"metrics": {"type": "object"}},
    "required": ["metrics"],
}
_PROBLEMS_MAX_COUNT: Final = 4
_MISSING: Final = object()
NUMBER_MAX: Final = 1e150
"""A mean and a spread of many such numbers are finite; beside it a double has no room for them."""


def load(
    reports: Mapping[str, bytes], spec: JobSpec, definition: WorkloadDefinition
) -> tuple[tuple[Report, ...], dict[str, tuple[ReportProblem, ...]]]:
    """Return the one report of a run, and the problems of its files."""
    problems: dict[str, tuple[ReportProblem, ...]] = {}
    rows: list[dict[str, Any]] = []
    for command in spec.commands:
        path = f"{command.folder}/{REPORT_FILE}"
        if command.folder is None or command.confirms or path not in reports:
            continue
        value, found = _read(reports[path], definition)
        if found:
            problems[path] = tuple(found)
        else:
            rows.append({"path": path, "seed": command.seed, "value": value})
    whole = {"kind": KIND, "arms": [], NAME: rows}
    data = strictjson.encode([row["path"] for row in rows])
    return (Report(NAME, data, None if problems else cast("StatedReport", whole)),), problems


def _read(data: bytes, definition: WorkloadDefinition) -> tuple[Any, list[ReportProblem]]:
    try:
        value = strictjson.decode(data, max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except (strictjson.StrictJsonError, MemoryError, RecursionError) as error:
        return None, [ReportProblem("G0-JSON", "", str(error) or type(error).__name__)]
    schema = STANDARD if definition.report_schema is None else definition.report_schema
    return value, list(_schema_problems(value, strictjson.encode(schema)))


def _schema_problems(value: Any, schema: bytes) -> Iterator[ReportProblem]:
    for count, error in enumerate(_validator(schema).iter_errors(value)):
        if count >= _PROBLEMS_MAX_COUNT:
            return
        where = "".join(f"/{part}" for part in error.absolute_path)
        yield ReportProblem("G0-SCHEMA", where[:200], error.message[:300])


@lru_cache(maxsize=8)
def _validator(schema: bytes) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry

    linear: Any = extend(Draft202012Validator, {"uniqueItems": unique_items})  # type: ignore[no-untyped-call]
    # Without a registry of its own it would fetch what a schema refers to.
    registry: Any = Registry()
    return linear(strictjson.decode(schema), registry=registry)


def found_at(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) names in a value.

    Raises:
        KeyError: nothing is there.
    """
    at = value
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(at, Mapping):
            at = at.get(name, _MISSING)
        elif isinstance(at, list) and name.isdigit() and int(name) < len(at):
            at = at[int(name)]
        else:
            at = _MISSING
        if at is _MISSING:
            raise KeyError(f"nothing is at {pointer}")
    return at


def number_at(value: Any, pointer: str) -> float:
    """Return the number that a JSON pointer names.

    Raises:
        KeyError: nothing is there.
        ValueError: it is no number, or so large that the square of one overflows.
    """
    found = found_at(value, pointer)
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= NUMBER_MAX:
        raise ValueError(f"{str(found)[:40]!r} at {pointer} is no number of at most {NUMBER_MAX:g}")
    return float(found)
