"""Typed views of reports, from the schemas of the envelope and of every kind: a renamed field is a type error.

`config` and `rows` differ by kind. Their views hold every field that some kind has; a field of one name and several
shapes is their union. What a kind's schema requires of them the gate has checked before a rule reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.gate.declared.kind import kinds
from bridge.gate.reports.schema import document

SAID = "Generated from the schemas (`python -m tests.drift --write`); never edit it."
HEAD = f'''"""Typed views of reports. {SAID}

`config` and `rows` hold every field that some kind has; G0-SCHEMA has checked what a kind requires of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from bridge.gate.declared.row_views import StatedRows

# ruff: noqa: D101 (the schemas describe the fields)
'''
ROWS_HEAD = f'''"""Typed views of the rows of reports. {SAID}

`StatedRows` holds every field that some kind has; G0-SCHEMA has checked what a kind requires of it.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

# ruff: noqa: D101 (the schemas describe the fields)
'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class Views:
    """Classes by name, in the order in which they can be written: what a class refers to comes first."""

    def __init__(self) -> None:
        self.classes: dict[str, dict[str, tuple[str, bool]]] = {}
        self.envelope = document("report")

    def of(self, schema: Any, name: str) -> str:
        """Return the annotation of a schema, making the classes it needs."""
        if schema is True or not schema:
            return "Any"
        if "$ref" in schema:
            target = schema["$ref"].rsplit("/", 1)[-1]
            return self.of(self.envelope["$defs"][target], f"Stated{camel(target)}")
        if "const" in schema:
            return f"Literal[{quoted(schema['const'])}]"
        if "enum" in schema:
            return f"Literal[{', '.join(quoted(value) for value in schema['enum'])}]"
        if "anyOf" in schema:
            return union([self.of(option, f"{name}{self.branch(option)}") for option in schema["anyOf"]])
        types = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(types, list):
            return union([self.of({**schema, "type": type_name}, name) for type_name in types])
        if types == "array":
            return f"list[{self.of(schema.get('items', True), singular(name))}]"
        if types == "object":
            return self.object(schema, name)
        return SIMPLE.get(str(types), "Any")

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a schema, or the one of the envelope that it refers to."""
        target = schema.get("$ref", "").rsplit("/", 1)[-1]
        definition: Mapping[str, Any] = self.envelope["$defs"][target] if target else schema
        return definition

    def branch(self, schema: Mapping[str, Any]) -> str:
        """Return what tells one alternative from the others: the value of its first constant."""
        constants = [field["const"] for field in schema.get("properties", {}).values() if "const" in field]
        return camel(str(constants[0])) if constants else ""

    def object(self, schema: Mapping[str, Any], name: str) -> str:
        properties = schema.get("properties")
        if not properties:
            inner = schema.get("additionalProperties", True)
            return f"Mapping[str, {'Any' if isinstance(inner, bool) else self.of(inner, name)}]"
        required = set(schema.get("required", ()))
        fields = {key: (self.of(value, f"{name}{camel(key)}"), key in required) for key, value in properties.items()}
        return self.add(name, fields)

    def add(self, name: str, fields: dict[str, tuple[str, bool]]) -> str:
        """Keep a class; one of the same name and other fields gets a number."""
        number, chosen = 1, name
        while chosen in self.classes and self.classes[chosen] != fields:
            number += 1
            chosen = f"{name}{number}"
        self.classes[chosen] = fields
        return chosen


def quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def camel(text: str) -> str:
    return "".join(part.capitalize() for part in text.replace("-", "_").split("_"))


def singular(name: str) -> str:
    for plural, single in (("Passes", "Pass"), ("Launches", "Launch"), ("LayerCanaries", "LayerCanary")):
        if name.endswith(plural):
            return name.removesuffix(plural) + single
    return name[:-1] if name.endswith("s") else f"{name}Row"


def union(names: list[str]) -> str:
    parts = [part for name in names for part in name.split(" | ")]
    classes = any(part.startswith("Stated") for part in parts)
    alternatives = dict.fromkeys(part for part in parts if not (classes and part.startswith("Mapping")))
    return " | ".join(sorted(alternatives, key=lambda name: (name == "None", list(alternatives).index(name))))


def merged(views: Views, part: str) -> dict[str, tuple[str, bool]]:
    """Return the fields that some kind has in a part of its report, objects of one name joined into one."""
    schemas: dict[str, list[tuple[str, Any]]] = {}
    for kind in kinds():
        for key, schema in document(kind)["properties"].get(part, {}).get("properties", {}).items():
            schemas.setdefault(key, []).append((kind, schema))
    return {key: (annotated(views, key, alternatives), False) for key, alternatives in schemas.items()}


def annotated(views: Views, key: str, alternatives: list[tuple[str, Any]]) -> str:
    """Return the annotation of a field that several kinds have."""
    objects = [views.resolved(schema) for _, schema in alternatives if views.resolved(schema).get("properties")]
    if len(objects) == len(alternatives):
        return views.of(joined(objects), f"Stated{camel(key)}")
    if len({fields_of(schema) for _, schema in alternatives}) > 1 and all(
        schema.get("type") == "array" for _, schema in alternatives
    ):
        return union([views.of(schema, f"Stated{camel(kind)}{camel(key)}") for kind, schema in alternatives])
    return union([views.of(schema, f"Stated{camel(key)}") for _, schema in alternatives])


def fields_of(schema: Mapping[str, Any]) -> str:
    """Return the classes that a schema alone would make, as text: bounds and patterns are no part of a type."""
    probe = Views()
    return f"{probe.of(schema, 'Stated')} {probe.classes}"


def joined(objects: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one object with the fields of all; required is what all require."""
    properties = {key: value for schema in objects for key, value in schema["properties"].items()}
    required = set.intersection(*(set(schema.get("required", ())) for schema in objects))
    return {"type": "object", "properties": properties, "required": sorted(required)}


def generate() -> dict[str, str]:
    """Return the modules by path."""
    views, own = Views(), Views()
    config = views.add("StatedConfig", merged(views, "config"))
    rows = own.add("StatedRows", merged(own, "rows"))
    fields = {
        key: (views.of(schema, f"Stated{camel(key)}"), key in views.envelope["required"])
        for key, schema in views.envelope["properties"].items()
    }
    fields |= {"config": (config, True), "rows": (rows, False)}
    views.add("StatedReport", fields)
    return {
        "bridge/gate/declared/views.py": HEAD + "".join(written(*item) for item in views.classes.items()),
        "bridge/gate/declared/row_views.py": ROWS_HEAD + "".join(written(*item) for item in own.classes.items()),
    }


def written(name: str, fields: Mapping[str, tuple[str, bool]]) -> str:
    lines = [f"    {key}: {kind if needed else f'NotRequired[{kind}]'}" for key, (kind, needed) in fields.items()]
    return f"\n\nclass {name}(TypedDict):\n" + "\n".join(line for long in lines for line in wrapped(long)) + "\n"


def wrapped(line: str) -> list[str]:
    return [line if len(line) <= 120 else f"{line}  # noqa: E501"]
