"""A preset's parameters as JSON Schema (2020-12) and in an agent's words, and their values as words of a command.

Knows neither tools nor commands.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import jsonschema

from bridge.durations import duration_text
from bridge.errors import UsageError
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
from bridge.records.workload import MetricDefinition

Schema = dict[str, Any]
_DESCRIBED_MAX_CHARS: Final = 3000  # of what `run` says of the presets of a bus's own


def of_value(**of_text: object) -> Schema:
    """Return the schema of a text, number or boolean, with these bounds on a text.

    Several clients read schemas with one type each and refuse or drop a list of types.
    """
    return {"anyOf": [{"type": "string", **of_text}, {"type": "number"}, {"type": "boolean"}]}


def check_params(arguments: Mapping[str, Any], preset: Preset | None) -> None:
    """Refuse a call whose parameters or profile are not those of its preset; one that nobody here knows is let by.

    Raises:
        UsageError: naming the parameter, and what the preset takes.
    """
    if preset is None:
        return
    given = arguments.get("param", {})
    swept = any(isinstance(value, list) for value in given.values())
    properties = {name: of_parameter(parameter) for name, parameter in preset.params.items()}
    if swept:
        properties = {
            name: {"anyOf": [schema, {"type": "array", "items": schema}]} for name, schema in properties.items()
        }
    required = [name for name, parameter in preset.params.items() if _required(parameter)]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    try:
        jsonschema.validate(dict(given), schema, cls=jsonschema.Draft202012Validator)
    except jsonschema.ValidationError as error:
        where = ".".join(("param", *(str(part) for part in error.absolute_path)))
        takes = ", ".join(properties) or "no parameters"
        raise UsageError(f"run: {where}: {error.message[:200]}; {preset.name} takes {takes}") from None
    if arguments.get("profile", preset.profiles[0]) not in preset.offered_profiles:
        raise UsageError(f"run: profile: {preset.name} has {' and '.join(preset.offered_profiles)}")


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


def param_words(option: str, values: Mapping[str, Any], *, installed: bool) -> list[str]:
    """Return parameters as words of a command line.

    Args:
        option: that takes one parameter.
        values: by name, or lists of them.
        installed: whether the preset is: otherwise a text keeps quotes, so that the host gets a text.
    """
    words = []
    for name, value in values.items():
        swept = isinstance(value, list)
        for item in value if swept else [value]:
            words += [option, f"{name}={_text(item, quoted=not installed and not swept)}"]
    return words


def _text(value: str | float | bool, *, quoted: bool) -> str:
    if isinstance(value, str):
        return f'"{value}"' if quoted else value
    return json.dumps(value)


def _required(parameter: Parameter) -> bool:
    return parameter.default is None and not isinstance(parameter, FlagParameter)


def presets_described(offered: Mapping[str, Preset | None], own: Collection[str]) -> str:
    """Return what a description of `run` says of the presets of a bus's own, a line each."""
    lines, room = [], _DESCRIBED_MAX_CHARS
    for name in own:
        line = f"{name}: {_described(offered[name])}"
        room -= len(line)
        if room < 0:
            lines.append("`presets` describes the others.")
            break
        lines.append(line)
    return " This bus's own:\n" + "\n".join(lines) if lines else ""


def _described(preset: Preset | None) -> str:
    """Return a preset in one line: what it does, takes and measures."""
    if preset is None:
        return "known to its host alone"
    limit_s = preset.limits.wall_s
    bound = f" At most {duration_text(limit_s)}." if limit_s is not None else ""
    takes = "; ".join(f"{name}: {short_parameter(parameter)}" for name, parameter in preset.params.items())
    measured = () if preset.workload is None else tuple(described(metric) for metric in preset.workload.metrics)
    gives = f" Measures {'; '.join(measured)}." if measured else ""
    return f"{preset.description.rstrip('.')}.{bound}{f' Takes {takes}.' if takes else ''}{gives}"


def short_parameter(parameter: Parameter) -> str:
    """Return a parameter in a few words: its values and its default."""
    facts = parameter.model_dump(mode="json", exclude_none=True)
    if "choices" in facts:
        values = " | ".join(facts["choices"])
    elif "min" in facts:
        values = f"{facts['min']} to {facts['max']}"
    else:
        values = str(facts["type"])
    return f"{values}, default {facts['default']}" if "default" in facts else values


def described(metric: MetricDefinition) -> str:
    """Return a declared metric in a few words: its aggregate, unit, direction and bounds."""
    facts = [metric.aggregate, metric.unit, *([f"{metric.better} is better"] if metric.better else [])]
    facts += [f"{metric.bounds[0]:g} to {metric.bounds[1]:g}"] if metric.bounds is not None else []
    return f"{metric.name} ({', '.join(facts)})"
