"""The tools of agents, made from the table of commands: names, words, schemas and command lines stand there alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from bridge.cli.table.command import Argument, Tool, Verb
from bridge.cli.table.commands import MAC
from bridge.limits import TEXT_MAX_CHARS
from bridge.mcp.schemas import Schema, check_params, of_value, param_words, presets_described
from bridge.mcp.tools import ToolSpec
from bridge.presets.model import Preset

_ID: Final = "^(@last|[0-9a-z]{4,26})$"
_PRESET: Final = "^[a-z0-9][a-z0-9._@-]{0,120}$"
_PARAM: Final = 'parameters of the preset by name, as in {"lr": 0.1}; a list of values sweeps'
_WORD: Final = "^[A-Za-z0-9][A-Za-z0-9._,/~^-]{0,199}$"  # no option, no control character
TOOL_OF: Final[dict[str, str]] = {verb.name: verb.tool.name or verb.name for verb in MAC.verbs if verb.tool is not None}
"""The tool that calls a command, by the command."""


def tools_of(offered: Mapping[str, Preset | None], own: Collection[str]) -> tuple[ToolSpec, ...]:
    """Return every tool, `run` first.

    Args:
        offered: what the bus offers by name, ``PRESET`` or ``PRESET@RUNNER``; None for what nobody here knows.
        own: those names that its hosts have of their own.
    """
    return tuple(_spec(verb, verb.tool, offered, own) for verb in MAC.verbs if verb.tool is not None)


def _spec(verb: Verb, tool: Tool, offered: Mapping[str, Preset | None], own: Collection[str]) -> ToolSpec:
    detail = None if tool.detail is None else MAC.by_name[tool.detail]
    taken = {argument.dest: argument for argument in (*verb.arguments, *(detail.arguments if detail else ()))}
    arguments = [taken[name] for name in tool.takes]
    required = [argument.dest for argument in verb.arguments if argument in arguments and _is_required(argument)]
    properties = {argument.dest: _property(argument, tool) for argument in arguments}
    text = f"{verb.summary[0].upper()}{verb.summary[1:]}. {tool.says}".rstrip()
    runs = verb.name == "run"
    if runs:
        names = [*own, *(name for name in offered if name not in own)]
        properties["preset"] |= {"enum": names} if names else {}
        text += presets_described(offered, own)

    def words(given: Mapping[str, Any]) -> list[str]:
        if runs:
            check_params(given, offered.get(given["preset"]))
        called = verb if detail is None or not given else detail
        installed = not runs or offered.get(given["preset"]) is not None
        parts = [word for argument in arguments for word in _words(argument, given.get(argument.dest), installed)]
        return [*called.name.split(), *parts, *tool.always]

    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(TOOL_OF[verb.name], text, schema, words, tool.changes, tool.waits)


def _is_required(argument: Argument) -> bool:
    return argument.positional and argument.kind in {"value", "many"}


def _property(argument: Argument, tool: Tool) -> Schema:
    """Return what a call may give for an argument."""
    if argument.kind == "repeat":  # K=V
        scalar = of_value(maxLength=TEXT_MAX_CHARS)
        values = {"type": "array", "minItems": 1, "maxItems": 64, "items": of_value(pattern="^[^\\x00-\\x1f]{1,200}$")}
        either = {"anyOf": [*scalar["anyOf"], values]}
        return {"type": "object", "additionalProperties": either, "default": {}, "description": _PARAM}
    schema = _scalar(argument, tool)
    if argument.kind == "many":
        schema = {"type": "array", "minItems": 1, "maxItems": 64, "items": schema}
    return schema | {"description": argument.help}


def _scalar(argument: Argument, tool: Tool) -> Schema:
    if argument.dest in tool.limits:
        least, most, default = tool.limits[argument.dest]
        bounds: Schema = {"type": "integer", "minimum": least, "maximum": most}
        return bounds if default is None else bounds | {"default": default}
    if argument.choices:
        return {"type": "string", "enum": list(argument.choices), "default": argument.default}
    pattern = {"run": _ID, "preset": _PRESET}.get(argument.complete, _WORD)
    return {"type": "string", "pattern": pattern}


def _words(argument: Argument, value: Any, installed: bool) -> list[str]:
    """Return an argument of a call as words of a command line."""
    if value is None:
        return []
    if argument.kind == "repeat":
        return param_words(argument.names[0], value, installed=installed)
    if argument.kind == "many":
        return [str(item) for item in value]
    return [str(value)] if argument.positional else [argument.names[-1], str(value)]
