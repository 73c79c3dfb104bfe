"""Read the text of a `workload.toml`: the file, or every mistake in it with its line and what to write instead.

Knows nothing about the folder around it.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final, get_args

import pydantic

from bridge.presets.workloads.file import WorkloadFile

Mistake = tuple[tuple[str, ...], str, str]
"""Where in the file, what is wrong, what to do."""

_EXAMPLE: Final = "kakeya-runner workload new NAME writes one that works"
_TYPES: Final = 'use int, float, choice, text or flag, as in: type = "float"'


def parsed(text: str) -> tuple[WorkloadFile | None, list[Mistake]]:
    """Return the file, or everything that keeps it from being one."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        return None, [((f"#{at.group(1) if at else 1}",), f"not TOML: {error}", "fix that line")]
    odd = [(where, "not a finite number") for where, number in _numbers(value) if not math.isfinite(number)]
    if odd:
        return None, [(where, problem, "write a number such as 100.0") for where, problem in odd]
    try:
        return WorkloadFile.model_validate_json(json.dumps(value)), []
    except pydantic.ValidationError as error:
        return None, _mistakes(error, value)
    except TypeError as error:
        return None, [((), f"holds a value no workload has: {error}", _EXAMPLE)]


def _numbers(value: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, float):
        yield where, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _numbers(inner, (*where, str(key)))


def _mistakes(error: pydantic.ValidationError, value: dict[str, Any]) -> list[Mistake]:
    """Return one mistake for each place: of a value that may be a table or a number, the word about the number."""
    by_place: dict[tuple[str, ...], Mistake] = {}
    for details in error.errors():
        mistake = _mistake(details, value)
        by_place[mistake[0]] = mistake
    return list(by_place.values())


def _mistake(details: Any, value: dict[str, Any]) -> Mistake:
    """Return one mistake of the file in words."""
    where = _place(details["loc"], value, missing=details["type"] == "missing")
    name = ".".join(where) or "the file"
    if details["loc"][-1:] == ("[key]",):
        return where, f"{name}: {details['msg']}; got {json.dumps(where[-1])[:60]}", _name_remedy(where)
    if details["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where[-1], _keys(where[:-1]), n=1)
        within = ".".join(("presets", "NAME", where[-1]))
        other = f"write {within}: it is of a preset" if where[-1] in _keys(("presets", "NAME")) else "remove it"
        return where, f"{name}: unknown key", f"did you mean {near[0]}?" if near else other
    if details["type"] == "missing":
        return where[:-1], f"{name} is missing", f"add {where[-1]} = ..."
    if details["type"] in {"union_tag_not_found", "union_tag_invalid"}:
        tag = details["ctx"].get("tag")
        wrong = f"{name}.type is missing" if tag is None else f"{name}: no type of parameter is called {tag!r:.60}"
        return where, wrong, _TYPES
    text = str(details["msg"]).removeprefix("Value error, ")
    if details["type"] == "string_pattern_mismatch" and {"file", "keep"} & {*where}:
        text = "expected a file below the folder that the program runs in"
    elif details["type"] == "too_short":
        text = "holds nothing"
    if details["type"] == "value_error":
        return where, f"{name}: {text}", _remedy(where, text)
    return where, f"{name}: {text}; got {json.dumps(details['input'], default=str)[:60]}", _remedy(where, text)


def _place(location: tuple[str | int, ...], value: Any, *, missing: bool) -> tuple[str, ...]:
    """Return the keys of a place in the file, without pydantic's words for the kinds that a value there may be of.

    Args:
        location: as pydantic says it.
        value: the file.
        missing: whether the last key is the one that is not there.
    """
    where: list[str] = []
    for number, part in enumerate(location, start=1):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):  # a word for a kind, or the key that is missing
            if not missing or number < len(location):
                continue
        where.append(str(part))
    return tuple(where)


def _name_remedy(where: tuple[str, ...]) -> str:
    """Return what to do about a key that is no name."""
    if "variables" in where[:-1]:
        return "use upper-case letters, digits and _, as in: OMP_NUM_THREADS"
    return "use at most 63 lower-case letters, digits, - . _"


def _remedy(where: tuple[str, ...], text: str) -> str:
    last = where[-1] if where else ""
    remedies = {
        "claim": "use median, mean, share, count, ratio or none",
        "schema": "write schema = 1",
        "name": "use lower-case letters, digits, - . _",
        "premises": "see kakeya-mac gate explain bound for the names",
        "better": 'write better = "higher" or "lower"',
        "sha256": "write what sha256sum prints of the file",
        "argv": 'write the program first, as in: argv = ["train.py"]',
        "bounds": "write the smallest and the largest, as in: bounds = [0, 100]",
        "file": "write its name, as in: metrics.json",
        "keep": "write its name, as in: plot.png",
        "number": 'write e.g. number = { stdout = "loss: ([0-9.]+)" }',
        "repeats": "write e.g. repeats = 6, or repeats = { smoke = 1, claim = 6 }",
        "wall_s": "write seconds, as in: limits.wall_s = 600.0",
        "pattern": 'write a regular expression of the whole text, as in: pattern = "[a-z]{1,20}"',
    }
    if "bounds are" in text:
        return remedies["bounds"]
    if "does not begin with" in text:
        return "write allow_dash = true, if the program takes a value that begins with -"
    if len(where) > 1 and where[-2] == "params":
        return "write min, max, and a default between them"
    if last.isdigit() and len(where) > 1:
        return _remedy(where[:-1], text)
    return remedies.get(last, "see the example in docs/guides/workloads.md")


def _keys(where: tuple[str, ...]) -> list[str]:
    """Return the keys of a table of the file."""
    model: Any = WorkloadFile
    for part in where:
        field = getattr(model, "model_fields", {}).get(part)
        model = model if field is None else next(_models(field.annotation), model)
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _models(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def line_of(text: str, where: tuple[str, ...]) -> int:
    """Return the line of a key of a TOML text, or the nearest table above it that is written out."""
    if where and where[0].startswith("#"):
        return int(where[0][1:])
    lines = text.splitlines()
    for depth in range(len(where), 0, -1):
        for split in range(depth, -1, -1):
            table, key = where[:split], where[split:depth]
            start = _header(lines, table) if table else 0
            if start is None:
                continue
            if not key:
                return start
            pattern = re.compile(rf"\s*\"?{re.escape('.'.join(key))}\"?\s*[=.]")
            for number, line in enumerate(lines[start:], start=start + 1):
                if line.lstrip().startswith("[") and not line.lstrip().startswith("[["):
                    break
                if pattern.match(line):
                    return number
    return 1


def _header(lines: list[str], table: tuple[str, ...]) -> int | None:
    heading = ".".join(table).replace(" ", "")
    for number, line in enumerate(lines, start=1):
        if line.strip().strip("[]").replace('"', "").replace(" ", "") == heading and line.strip().startswith("["):
            return number
    return None
