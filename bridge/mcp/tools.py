"""One tool: what a call of it may give, and the command line that the call is. Data and words, no protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema

from bridge.errors import UsageError
from bridge.mcp.schemas import Schema

_SHOWN_CHARS: Final = 100  # of a value that does not fit
_WHOLE_MAX: Final = 2.0**53  # beyond it a double is no longer one whole number


@dataclass(frozen=True)
class ToolSpec:
    """One tool.

    Attributes:
        schema: of its arguments.
        words: returns the command line of a call whose arguments fit the schema.
        changes: what a call changes: nothing, something that is added, or something that is ended.
        waits: whether a call may take as long as its argument ``seconds``.
    """

    name: str
    description: str
    schema: Schema
    words: Callable[[Mapping[str, Any]], list[str]]
    changes: str = "nothing"
    waits: bool = False

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with the defaults of plain properties.

        Raises:
            UsageError: they do not fit the schema.
        """
        try:
            jsonschema.validate(dict(arguments), self.schema, cls=jsonschema.Draft202012Validator)
        except jsonschema.ValidationError as error:
            where = ".".join(str(part) for part in error.absolute_path) or "arguments"
            raise UsageError(f"{self.name}: {where}: {_expected(error)[:300]}{self._misplaced(arguments)}") from None
        defaults = {
            name: schema["default"] for name, schema in self.schema["properties"].items() if "default" in schema
        }
        return defaults | {name: _whole(value) for name, value in arguments.items()}

    def _misplaced(self, arguments: Mapping[str, Any]) -> str:
        """Return where to write what stands beside `param` and belongs below it."""
        properties = self.schema["properties"]
        stray = {name: value for name, value in arguments.items() if name not in properties}
        if "param" not in properties or not stray:
            return ""
        return f"; parameters of a preset go below param: {json.dumps({'param': stray}, default=str)[:200]}"


def _whole(value: Any) -> Any:
    """Return a value with 1.0 as 1: JSON Schema takes either for an integer (2020-12 Core, section 4.2.2)."""
    if isinstance(value, Mapping):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _WHOLE_MAX
    return int(value) if is_whole else value


def _expected(error: jsonschema.ValidationError) -> str:
    """Return what a value is and should be; of one that may be of several types, those and why its own fails."""
    if error.validator != "anyOf":
        value = repr(error.instance)  # what is expected stands behind it
        return error.message.replace(value, f"{value[:60]}…" if len(value) > _SHOWN_CHARS else value)
    reasons = [cause.message for cause in error.context if cause.validator != "type"]
    types = ", ".join(sorted({str(cause.validator_value) for cause in error.context if cause.validator == "type"}))
    return reasons[0] if reasons else f"{str(error.instance)[:100]!r} is none of {types}"
