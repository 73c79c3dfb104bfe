"""Say yes quickly to values that plainly conform to their schema; never say no.

A report holds tens of thousands of values; the full validator looks only at what this cannot wave through, and words
what is wrong there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from typing import Any, Final

from bridge.gate.reports.scalars import Predicate, of_scalar, unsure
from bridge.gate.reports.uniqueness import is_unique

_SAYS_NOTHING: Final = frozenset({"$schema", "$id", "$defs", "title", "description"})
_WORDS: Final = (str, bool, int, type(None))


class Conforming:
    """Predicates of every schema within some documents, made once; a schema is recognised by its identity.

    Args:
        documents: by the name that a ``$ref`` gives them; kept for as long as this is.
    """

    def __init__(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._documents = dict(documents)
        self._made: dict[int, Predicate] = {}
        for name, schema in documents.items():
            self._make(schema, name)
            for part in schema.get("$defs", {}).values():
                self._make(part, name)

    def conforms(self, schema: object) -> Predicate:
        """Return a predicate that is true only for values that certainly conform."""
        return self._made.get(id(schema), unsure)

    def _make(self, schema: Any, document: str) -> Predicate:
        if id(schema) not in self._made:
            self._made[id(schema)] = unsure  # while it is being made
            self._made[id(schema)] = of_scalar(schema) or self._of_parts(schema, document)
        return self._made[id(schema)]

    def _of_parts(self, schema: Any, document: str) -> Predicate:
        """Return what holds when every keyword does."""
        if not isinstance(schema, Mapping):
            return _anything if schema is True else unsure
        made = [self._of_keyword(word, schema, document) for word in schema.keys() - _SAYS_NOTHING]
        if unsure in made:
            return unsure
        return lambda value: all(one(value) for one in made)

    def _of_keyword(self, word: str, schema: Mapping[str, Any], document: str) -> Predicate:
        said, below = schema[word], partial(self._make, document=document)
        if word == "$ref":
            return self._of_reference(said, document)
        if word == "properties":
            return _of_named({name: below(part) for name, part in said.items()})
        if word == "additionalProperties":
            return _of_others(schema.get("properties", {}).keys(), unsure if said is False else below(said))
        if word in _HOLDING_SCHEMAS:
            return _HOLDING_SCHEMAS[word](below(said))
        if word in {"allOf", "anyOf"}:
            return _of_several([below(part) for part in said], all if word == "allOf" else any)
        return _KEYWORDS[word](said) if word in _KEYWORDS else unsure

    def _of_reference(self, reference: str, document: str) -> Predicate:
        name, _, place = reference.partition("#/$defs/")
        target = self._documents.get(name or document)
        if target is None or (place and place not in target.get("$defs", {})):
            return unsure
        schema = target["$defs"][place] if place else target

        def conforms(value: object) -> bool:
            return self.conforms(schema)(value)  # asked then: it may not be made yet

        return conforms


def _of_several(parts: list[Predicate], every: Callable[[Iterable[bool]], bool]) -> Predicate:
    return lambda value: every(one(value) for one in parts)


def _of_named(inner: Mapping[str, Predicate]) -> Predicate:
    """Return whether the properties that the schema names conform."""
    return lambda value: (
        not isinstance(value, dict) or all(name not in inner or inner[name](item) for name, item in value.items())
    )


def _of_others(named: Any, conforms: Predicate) -> Predicate:
    """Return whether the properties that the schema does not name conform."""
    return lambda value: not isinstance(value, dict) or all(conforms(value[name]) for name in value.keys() - named)


def _anything(_value: object) -> bool:
    return True


def _of_types(said: str | list[str]) -> Predicate:
    names = {said} if isinstance(said, str) else set(said)
    types = {
        kind
        for name, kinds in (
            ("object", (dict,)), ("array", (list,)), ("string", (str,)), ("boolean", (bool,)),
            ("integer", (int,)), ("number", (int, float)), ("null", (type(None),)),
        )
        if name in names
        for kind in kinds
    }  # fmt: skip
    return lambda value: type(value) in types


def _of_words(said: list[object]) -> Predicate:
    """Return whether a value is one of some words, of the same type: 1 and 1.0 and true are equal to Python."""
    words = {(type(word), word) for word in said if type(word) in _WORDS}
    return lambda value: type(value) in _WORDS and (type(value), value) in words


def _matching(pattern: str) -> Predicate:
    found = re.compile(pattern).search
    return lambda value: not isinstance(value, str) or found(value) is not None


def _sized(kind: type[Sized], holds: Callable[[int], bool]) -> Predicate:
    return lambda value: not isinstance(value, kind) or holds(len(value))


_KEYWORDS: Final[Mapping[str, Callable[[Any], Predicate]]] = {
    "type": _of_types,
    "enum": _of_words,
    "const": lambda said: _of_words([said]),
    "pattern": _matching,
    "required": lambda said: lambda value: not isinstance(value, dict) or all(name in value for name in said),
    "minItems": lambda said: _sized(list, lambda count: count >= said),
    "maxItems": lambda said: _sized(list, lambda count: count <= said),
    "maxProperties": lambda said: _sized(dict, lambda count: count <= said),
    "uniqueItems": lambda said: (lambda value: not isinstance(value, list) or is_unique(value)) if said else _anything,
}
_HOLDING_SCHEMAS: Final[Mapping[str, Callable[[Predicate], Predicate]]] = {
    "items": lambda item: lambda value: not isinstance(value, list) or all(map(item, value)),
    "propertyNames": lambda name: lambda value: not isinstance(value, dict) or all(map(name, value)),
}
