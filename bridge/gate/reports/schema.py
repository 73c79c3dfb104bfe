"""The JSON Schemas of reports (draft 2020-12) and their validation.

`report.schema.json` is the envelope all kinds share; `kinds/<kind>/schema.json` narrows `config`, `arms` and `rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from bridge.gate.reports.conforming import Conforming
from bridge.gate.reports.scalars import Predicate
from bridge.gate.reports.uniqueness import unique_items

_ENVELOPE = "report.schema.json"


def document(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of report, or the envelope under the name `report`."""
    place = files("bridge.gate")
    file = place / "reports/report.schema.json" if kind == "report" else place / f"kinds/{kind}/schema.json"
    value: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return value


def problems(value: dict[str, Any], *, at_most: int) -> Iterator[tuple[str, str]]:
    """Yield (JSON pointer, message) for what the schema of the value's kind forbids, at most so many."""
    conforms, validator = _validators(value["kind"])
    if conforms(value):
        return
    for count, error in enumerate(validator.iter_errors(value)):
        if count >= at_most:
            return
        leaf = _deepest(error)
        pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in leaf.absolute_path)
        yield pointer[:200], leaf.message[:300]


@cache
def _validators(kind: str) -> tuple[Predicate, Any]:
    """Return the quick predicate of a kind of report and the full validator."""
    # A schema that names its dialect would bring the standard validator back, with 3.0 for an integer.
    own, envelope = ({k: v for k, v in document(name).items() if k != "$schema"} for name in (kind, "report"))
    known = Conforming({kind: own, _ENVELOPE: envelope})
    return known.conforms(own), _full(own, envelope, known)


def _full(own: dict[str, Any], envelope: dict[str, Any], known: Conforming) -> Any:
    """Return the validator of one schema that looks only at what is not known to conform."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    standard = Draft202012Validator.VALIDATORS
    quick: Any = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {
            "items": _items(standard["items"], known),
            "properties": _properties(standard["properties"], known),
            "uniqueItems": unique_items,
        },
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
    )
    registry: Any = Registry().with_resource(_ENVELOPE, DRAFT202012.create_resource(envelope))
    return quick(own, registry=registry)


def _items(standard: Any, known: Conforming) -> Any:
    """Wrap ``items``: a list whose items all conform (token ids, times) needs no descent each."""

    def check(validator: Any, schema: Any, instance: Any, whole: Any) -> Iterator[Any]:
        if isinstance(instance, list) and all(map(known.conforms(schema), instance)):
            return
        yield from standard(validator, schema, instance, whole)

    return check


def _properties(standard: Any, known: Conforming) -> Any:
    """Wrap ``properties``: what conforms needs no descent, everything else goes the standard way."""

    def check(validator: Any, schema: Any, instance: Any, whole: Any) -> Iterator[Any]:
        if isinstance(instance, dict):
            rest = {
                name: inner
                for name, inner in schema.items()
                if name in instance and not known.conforms(inner)(instance[name])
            }
            if rest:
                yield from standard(validator, rest, instance, whole)

    return check


def _is_integer(_checker: Any, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # 3.0 is a float: a count was computed, not counted


def _deepest(error: Any) -> Any:
    """Return the most specific error below an ``allOf``/``anyOf`` error."""
    while error.context:
        error = max(error.context, key=lambda inner: len(inner.absolute_path))
    return error
