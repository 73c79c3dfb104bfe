"""Say yes quickly to scalars that plainly conform to a small schema; never say no."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

Predicate = Callable[[object], bool]
_COMPOUND: Final = frozenset({"object", "array"})
_KNOWN: Final = frozenset({"type", "minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "pattern"})


def of_scalar(schema: Any) -> Predicate | None:
    """Return a predicate that is true only for scalars that certainly conform; None for a schema of something else."""
    if not isinstance(schema, dict):
        return None
    named = schema.get("type")
    if named is None or not schema.keys() <= _KNOWN or _COMPOUND & set([named] if isinstance(named, str) else named):
        return None
    made = [_of_type(name, schema) for name in ([named] if isinstance(named, str) else named)]
    if len(made) == 1:
        return made[0]
    return lambda value: any(one(value) for one in made)


def _of_type(name: str, schema: dict[str, Any]) -> Predicate:
    if name in {"integer", "number"}:
        types: tuple[type, ...] = (int,) if name == "integer" else (int, float)
        low, above = schema.get("minimum", float("-inf")), schema.get("exclusiveMinimum", float("-inf"))
        high = schema.get("maximum", float("inf"))
        return lambda value: type(value) in types and low <= value <= high and value > above
    if name == "string":
        least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
        found = re.compile(schema.get("pattern", "")).search
        return lambda value: type(value) is str and least <= len(value) <= most and found(value) is not None
    if name == "boolean":
        return lambda value: value is True or value is False
    if name == "null":
        return lambda value: value is None
    return unsure


def unsure(_value: object) -> bool:
    """Return that a value may or may not conform."""
    return False
