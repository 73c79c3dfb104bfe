"""Say yes quickly to scalars that plainly conform to a small schema; never say no.

A report holds tens of thousands of scalars; the full validator looks only at those this cannot wave through.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN: Final = frozenset({"type", "minimum", "exclusiveMinimum", "minLength", "maxLength", "pattern", "enum", "const"})


def conforms(schema: dict[str, Any], value: object) -> bool:
    """Return whether a scalar certainly conforms; False means that somebody else must look."""
    if isinstance(value, dict | list) or not schema.keys() <= _KNOWN or "type" not in schema:
        return "enum" in schema and len(schema) == 1 and isinstance(value, str) and value in schema["enum"]
    named = schema["type"]
    if not _is_any(value, (named,) if isinstance(named, str) else tuple(named)):
        return False
    if isinstance(value, str):
        return (
            schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
            and ("pattern" not in schema or _compiled(schema["pattern"]).search(value) is not None)
            and "enum" not in schema
            and "const" not in schema
        )
    if isinstance(value, bool) or value is None:
        return "enum" not in schema and "const" not in schema
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    return (
        isinstance(value, int | float)
        and (low is None or value >= low)
        and (above is None or value > above)
        and "enum" not in schema
        and "const" not in schema
    )


def _is_any(value: object, names: tuple[str, ...]) -> bool:
    return any(
        isinstance(value, _TYPES.get(name, ())) and (name == "boolean" or not isinstance(value, bool)) for name in names
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
