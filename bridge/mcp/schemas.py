"""A preset's declared parameters as JSON Schema (2020-12), and the values of a call as words of a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema

from bridge.errors import UsageError
from bridge.limits import TEXT_MAX_CHARS
from bridge.presets.model import Preset
from bridge.presets.parameters import (
    ChoiceParameter,
    FlagParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    PathParameter,
    TextParameter,
)

Schema = dict[str, Any]

PROFILE: Final[Schema] = {
    "type": "string",
    "enum": ["smoke", "claim"],
    "default": "smoke",
    "description": "smoke: a quick look; claim: measured so that it may be quoted; `quote` has the last word on either",
}
RUNNER: Final[Schema] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._,-]{0,99}$",
    "description": "name of the runner that may take it, or labels such as gpu,quiet",
}
REF: Final[Schema] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._/~^-]{0,199}$",
    "description": "commit of this clone whose tree is sent; default HEAD",
}


def _scalar(**of_text: object) -> Schema:
    """Return the schema of a text, number or boolean, with these bounds on a text.

    Several clients read schemas with one type each and refuse or drop a list of types.
    """
    return {"anyOf": [{"type": "string", **of_text}, {"type": "number"}, {"type": "boolean"}]}


PRESET_PATTERN: Final = "^[a-z0-9][a-z0-9._@-]{0,120}$"
SWEEP: Final[Schema] = {
    "type": "object",
    "properties": {
        "preset": {
            "type": "string", "pattern": PRESET_PATTERN, "description": "name of a preset of this bus",
        },
        "values": {
            "type": "object",
            "additionalProperties": {
                "type": "array", "minItems": 1, "maxItems": 64,
                "items": _scalar(pattern="^[^\u0000-\u001f]{1,200}$"),
            },
            "default": {},
            "description": "the values of each parameter; one value for what stays as it is",
        },
        "repeat": {"type": "integer", "minimum": 1, "maximum": 64, "default": 1},
        "profile": PROFILE,
        "runner": RUNNER,
    },
    "required": ["preset"],
    "additionalProperties": False,
}  # fmt: skip
"""The arguments of a sweep, which names its preset."""


def sweep_words(arguments: Mapping[str, Any]) -> list[str]:
    """Return the command line of a sweep; its arguments fit the schema."""
    argv = ["run", arguments["preset"], "--repeat", str(arguments["repeat"])]
    for name, values in arguments["values"].items():
        for value in values:
            argv += ["-p", f"{name}={_text(value, quoted=False)}"]
    for option in ("profile", "runner"):
        argv += [f"--{option}", arguments[option]] if option in arguments else []
    return argv


def of_run(names: Sequence[str]) -> Schema:
    """Return the input schema of `run` over presets of these names, in their order."""
    params = {
        "type": "object",
        "additionalProperties": _scalar(maxLength=TEXT_MAX_CHARS),
        "description": 'the parameters of the preset, e.g. {"lr": 0.1}',
        "default": {},
    }
    preset = {"type": "string", "description": "what to run"} | ({"enum": list(names)} if names else {})
    return _object({"preset": preset, "params": params, "profile": PROFILE, "runner": RUNNER, "ref": REF}, ["preset"])


def run_words(arguments: Mapping[str, Any], offered: Mapping[str, Preset | None]) -> list[str]:
    """Return the command line of a call of `run`; its arguments fit the schema.

    Raises:
        UsageError: the parameters are not those of the preset.
    """
    preset = offered.get(arguments["preset"])
    if preset is not None:
        _check_params(arguments, preset)
    return words(arguments["preset"], arguments, installed=preset is not None)


def _check_params(arguments: Mapping[str, Any], preset: Preset) -> None:
    properties = {name: of_parameter(parameter) for name, parameter in preset.params.items()}
    required = [name for name, parameter in preset.params.items() if _required(parameter)]
    given = dict(arguments.get("params", {}))
    try:
        jsonschema.validate(given, _object(properties, required), cls=jsonschema.Draft202012Validator)
    except jsonschema.ValidationError as error:
        where = ".".join(("params", *(str(part) for part in error.absolute_path)))
        takes = ", ".join(properties) or "no parameters"
        raise UsageError(f"run: {where}: {error.message[:200]}; {preset.name} takes {takes}") from None
    if arguments.get("profile", preset.profiles[0]) not in preset.profiles:
        raise UsageError(f"run: profile: {preset.name} has {' and '.join(preset.profiles)}")


def of_parameter(parameter: Parameter) -> Schema:
    """Return the schema of one parameter."""
    unit = f" ({parameter.unit})" if parameter.unit else ""
    schema: Schema = {"description": f"{parameter.help}{unit}"}
    match parameter:
        case IntParameter():
            schema |= {"type": "integer", "minimum": parameter.min, "maximum": parameter.max}
        case FloatParameter():
            schema |= {"type": "number", "minimum": parameter.min, "maximum": parameter.max}
        case ChoiceParameter():
            schema |= {"type": "string", "enum": list(parameter.choices)}
        case FlagParameter():
            schema |= {"type": "boolean"}
        case TextParameter():
            schema |= {"type": "string", "pattern": f"^(?:{parameter.pattern})$", "maxLength": parameter.max_chars}
        case PathParameter():
            schema |= {"type": "string", "maxLength": 255}
        case _:
            schema |= {"type": "string", "maxLength": 255}
            schema["description"] += "; any revision of this clone"
    return schema if parameter.default is None else schema | {"default": parameter.default}


def words(name: str, arguments: Mapping[str, Any], *, installed: bool) -> list[str]:
    """Return the command line of a call; its arguments fit the schema.

    Args:
        name: the preset.
        arguments: of the call.
        installed: whether the preset is: otherwise a text keeps quotes, so that the host gets a text.
    """
    argv = ["run", name]
    for key, value in arguments.get("params", {}).items():
        argv += ["-p", f"{key}={_text(value, quoted=not installed)}"]
    for option in ("profile", "runner", "ref"):
        if option in arguments:
            argv += [f"--{option}", str(arguments[option])]
    return argv


def _text(value: str | float | bool, *, quoted: bool) -> str:
    if isinstance(value, str):
        return f'"{value}"' if quoted else value
    return json.dumps(value)


def _required(parameter: Parameter) -> bool:
    return parameter.default is None and not isinstance(parameter, FlagParameter)


def _object(properties: Mapping[str, Schema], required: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return schema | ({"required": required} if required else {})
