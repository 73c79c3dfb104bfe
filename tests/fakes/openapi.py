"""Check requests and responses against an OpenAPI 3.0 description."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jsonschema


class Description:
    """An OpenAPI description; `nullable` is translated to JSON Schema on loading."""

    def __init__(self, path: Path) -> None:
        self._spec = _translate(json.loads(path.read_text(encoding="utf-8")))

    def operation(self, method: str, path: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the operation and the path's values.

        Raises:
            AssertionError: the description has no such operation.
        """
        for template, item in self._spec["paths"].items():
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
            match = re.fullmatch(pattern, path)
            if match and method.lower() in item:
                return item[method.lower()], match.groupdict()
        raise AssertionError(f"{method} {path} is not in GitHub's description")

    def check_request(self, method: str, path: str, query: str, body: bytes) -> None:
        """Raise AssertionError unless a request is as described."""
        operation, values = self.operation(method, path)
        given: dict[str, Any] = {**{key: texts[0] for key, texts in parse_qs(query).items()}}
        parameters = {}
        for raw in operation.get("parameters", []):
            parameter = self._resolve(raw)
            parameters[parameter["name"]] = parameter
        for name, text in given.items():
            assert name in parameters, f"{method} {path}: unknown query parameter {name}"
            self._validate(
                _typed(text, self._resolve(parameters[name]["schema"])), parameters[name]["schema"], f"query {name}"
            )
        for name, text in values.items():
            if name in parameters:
                self._validate(
                    _typed(text, self._resolve(parameters[name]["schema"])), parameters[name]["schema"], f"path {name}"
                )
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None and body:
            self._validate(json.loads(body), content["schema"], f"{method} {path} body")

    def check_response(self, method: str, path: str, status: int, value: Any) -> None:
        """Raise AssertionError unless a response is as described."""
        operation, _ = self.operation(method, path)
        described = operation["responses"].get(str(status))
        assert described is not None, f"{method} {path}: status {status} is not described"
        content = self._resolve(described).get("content", {}).get("application/json")
        if content is not None:
            self._validate(value, content["schema"], f"{method} {path} {status}")

    def example(self, schema: str, site: str, /, **fields: Any) -> dict[str, Any]:
        """Return the least object of a schema, with absolute URLs on `site` and the known fields filled in."""
        made = self._least(self._spec["components"]["schemas"][schema], site)
        return {**made, **fields}

    def _least(self, raw: dict[str, Any], site: str) -> Any:
        schema = self._resolve(raw)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                options = schema[key]
                return None if {"type": "null"} in options else self._least(options[0], site)
        if "allOf" in schema:
            merged: dict[str, Any] = {}
            for part in schema["allOf"]:
                merged.update(self._least(part, site))
            return merged
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "object")
        if kind == "object":
            properties = schema.get("properties", {})
            return {key: self._least(properties.get(key, {}), site) for key in schema.get("required", ())}
        if kind == "string":
            formats = {"date-time": "2026-01-02T03:04:05Z", "uri": f"{site}/x", "email": "a@example.org"}
            return formats.get(schema.get("format", ""), "x")
        return {"integer": 1, "number": 1.0, "boolean": False, "array": []}[kind]

    def _resolve(self, value: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in value:
            target: Any = self._spec
            for part in value["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            value = target
        return value

    def _validate(self, value: Any, schema: dict[str, Any], where: str) -> None:
        whole = {**schema, "components": self._spec["components"]}
        error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(whole).iter_errors(value))
        assert error is None, f"{where}: {error.message[:300]} at {error.json_path}"


@cache
def github() -> Description:
    """Return GitHub's description, trimmed to the used paths."""
    return Description(Path(__file__).parent.parent / "data" / "github" / "openapi.json")


def _typed(text: str, schema: dict[str, Any]) -> Any:
    if schema.get("type") == "integer":
        return int(text)
    if schema.get("type") == "boolean":
        return text == "true"
    if "oneOf" in schema and text.isdigit():
        return int(text)
    return text


def _translate(value: Any) -> Any:
    if isinstance(value, list):
        return [_translate(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    translated = {key: _translate(entry) for key, entry in value.items()}
    if translated.pop("nullable", False) is True:
        return {"anyOf": [translated, {"type": "null"}]}
    return translated
