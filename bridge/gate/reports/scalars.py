"""Say yes quickly to scalars that plainly conform to a small schema; never say no.

A report holds tens of thousands of scalars; the full validator looks only at those this cannot wave through.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

Predicate = Callable[[object], bool]
_KNOWN: Final = frozenset({"type", "minimum", "exclusiveMinimum", "minLength", "maxLength", "pattern"})


class Leaves:
    """Predicates of small schemas, made once each; a schema is recognised by its identity, so it is kept."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, Predicate]] = {}

    def conforms(self, schema: Any) -> Predicate:
        """Return a predicate that is true only for scalars that certainly conform."""
        known = self._made.get(id(schema))
        if known is None:
            known = self._made[id(schema)] = (schema, _predicate(schema))
        return known[1]


def _predicate(schema: Any) -> Predicate:
    if not isinstance(schema, dict):
        return _unsure
    if schema.keys() == {"enum"}:
        words = frozenset(word for word in schema["enum"] if isinstance(word, str))
        return lambda value: type(value) is str and value in words
    named = schema.get("type")
    if named is None or not schema.keys() <= _KNOWN:
        return _unsure
    made = [_of_type(name, schema) for name in ([named] if isinstance(named, str) else named)]
    if len(made) == 1:
        return made[0]
    return lambda value: any(one(value) for one in made)


def _of_type(name: str, schema: dict[str, Any]) -> Predicate:
    if name in {"integer", "number"}:
        types: tuple[type, ...] = (int,) if name == "integer" else (int, float)
        low, above = schema.get("minimum", float("-inf")), schema.get("exclusiveMinimum", float("-inf"))
        return lambda value: type(value) in types and value >= low and value > above
    if name == "string":
        least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
        found = re.compile(schema.get("pattern", "")).search
        return lambda value: type(value) is str and least <= len(value) <= most and found(value) is not None
    if name == "boolean":
        return lambda value: value is True or value is False
    if name == "null":
        return lambda value: value is None
    return _unsure


def _unsure(_value: object) -> bool:
    return False
