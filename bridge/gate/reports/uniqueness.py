"""Whether the items of a list are all different, at a cost that grows with the list and not with its square.

jsonschema sorts them, and where they cannot be sorted, as numbers beside a text, compares each with every other.
Equal is what JSON Schema takes for equal (draft 2020-12, section 4.2.2): 1 and 1.0 are one number, 1 and true are two
values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def is_unique(items: Sequence[Any]) -> bool:
    """Return whether no JSON value is there twice."""
    return len(set(map(_key, items))) == len(items)


def unique_items(_validator: Any, must_be: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Validate the keyword ``uniqueItems`` in the place of jsonschema's own."""
    from jsonschema.exceptions import ValidationError

    if must_be and isinstance(instance, list) and not is_unique(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _key(value: Any) -> str:
    """Return a text that equal values share, and no others: numbers can be chosen so that all have one hash."""
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return f'"{value}'  # no other value's begins so
    return json.dumps(_as_equal(value), sort_keys=True)


def _as_equal(value: Any) -> Any:
    """Return a value in which each whole number is an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_as_equal(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_equal(item) for name, item in value.items()}
    return value
