"""Read the options of a program off its source: argparse and click, as parameters that a request may set.

Nothing of the program is run. An option that no parameter can stand for is named with the reason.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_TOKEN: Final = re.compile(r"--[a-z][a-z0-9-]*")
_SEEDS: Final = frozenset({"seed", "random-seed", "random_seed", "rng-seed", "random-state", "random_state"})
_HELP_MAX_CHARS: Final = 200
_AGAIN: Final = "an option of its name was there before"
_TEXT: Final = "[A-Za-z0-9_.,:+/-]{1,64}"
_NUMBERS: Final = {"int": "int", "float": "float", "INT": "int", "FLOAT": "float"}


@dataclass(frozen=True)
class Option:
    """An option of a program.

    Attributes:
        option: as it is typed, e.g. ``--lr``.
        name: of the parameter.
        words: of the command line; none where it is left out.
        declared: the parameter as workload.toml writes it; None where it is left out, or is the seed.
        dropped: why no parameter stands for it; None where one does.
        seed: whether it takes the seed of a repeat.
    """

    option: str
    name: str
    words: tuple[str, ...] = ()
    declared: str | None = None
    dropped: str | None = None
    seed: bool = False


def options_of(text: str) -> Iterator[Option]:
    """Yield the options of a Python program, in the order of its source; none where it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    taken: set[str] = set()
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        verb = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if verb in {"add_argument", "option", "argument"}:
            names = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant) and type(arg.value) is str]
            if names:
                option = _option(names, {word.arg: word.value for word in call.keywords if word.arg is not None})
                again = option.name in taken
                yield Option(option.option, option.name, dropped=_AGAIN) if again else option
                taken.update([option.name] if option.words else [])


def _option(names: list[str], given: dict[str, ast.expr]) -> Option:
    """Return one option by its names and the keywords of its declaration."""
    long = next((name for name in names if name.startswith("--")), names[0]).partition("/")[0]
    name = long.lstrip("-").lower()
    default, action = _constant(given.get("default")), _constant(given.get("action"))
    kind, choices = _kind(given.get("type")), _choices(given)
    if name in _SEEDS and long.startswith("-"):
        return Option(long, name, words=(long, "{seed}"), seed=True)
    if action == "store_true" or _constant(given.get("is_flag")) is True:
        return _flag(long, name, given, default)
    declared = _declared(kind, choices, default)
    several = action not in {None, "store"} or "nargs" in given or _constant(given.get("multiple")) is True
    reasons = {
        "it stands without an option; write its value into argv": not long.startswith("-"),
        "its name is none of a parameter": _NAME.fullmatch(name) is None,
        "it takes several values, or does something of its own": several,
        "it has no default": declared is None and default is None,
        "its default begins with -, or has characters that no parameter here has": (
            declared is None and _is_text(kind, default)
        ),
        f"no parameter is a {kind or type(default).__name__}": declared is None,
    }
    dropped = next((reason for reason, holds in reasons.items() if holds), None)
    if dropped is not None or declared is None:
        return Option(long, name, dropped=dropped)
    return Option(long, name, (long, f"{{{name}}}"), _table({**declared, "help": _help(given, name)}))


def _declared(kind: str | None, choices: list[str] | None, default: Any) -> dict[str, Any] | None:
    """Return the parameter that stands for an option with a value, None where none does."""
    if choices is not None:
        dashed = {"allow_dash": True} if any(choice.startswith("-") for choice in choices) else {}
        return {"type": "choice", "choices": choices, "default": _as_text(default, choices), **dashed}
    number = type(default) in {int, float}
    if number and (kind is None or kind in _NUMBERS.values()):
        return _bounded(kind or type(default).__name__, default)
    if _is_text(kind, default) and re.fullmatch(_TEXT, default) and not default.startswith("-"):
        return {"type": "text", "pattern": _TEXT, "default": default}
    return None


def _is_text(kind: str | None, default: Any) -> bool:
    return kind in {None, "str", "STRING"} and type(default) is str


def _flag(long: str, name: str, given: dict[str, ast.expr], default: Any) -> Option:
    if _TOKEN.fullmatch(long) is None or default is True:
        return Option(long, name, dropped="a flag is --NAME of lower-case letters and -, and off by default")
    table = {"type": "flag", "token": long, "help": _help(given, name)}
    return Option(long, name, (f"{{{name}}}",), _table(table))


def _constant(node: ast.expr | None) -> Any:
    """Return the value of a constant, also of a negative number; None where it is something else."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _kind(node: ast.expr | None) -> str | None:
    """Return the name of a type: ``int``, ``float``, ``str``; what it is called where it is something else."""
    if node is None:
        return None
    if isinstance(node, ast.Call):
        node = node.func
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "value of a type of its own")
    return _NUMBERS.get(name, name)


def _choices(given: dict[str, ast.expr]) -> list[str] | None:
    """Return the texts that an option may be, None where it may be anything."""
    node = given.get("choices")
    kind = given.get("type")
    if node is None and isinstance(kind, ast.Call) and _kind(kind) == "Choice" and kind.args:
        node = kind.args[0]
    values = _constant(node)
    if not isinstance(values, list | tuple) or not values or not all(type(value) in {str, int} for value in values):
        return None
    return [str(value) for value in values]


def _as_text(default: Any, choices: list[str]) -> str:
    return str(default) if str(default) in choices else choices[0]


def _bounded(kind: str, default: float) -> dict[str, Any]:
    """Return a parameter between a tenth and ten times its default: the owner narrows it."""
    low, high = sorted((default / 10, default * 10)) if default else (0, 1)
    below = {"allow_dash": True} if low < 0 else {}
    if kind == "int":
        return {"type": "int", "min": int(low), "max": max(int(high), 1), "default": int(default), **below}
    return {"type": "float", "min": float(low), "max": float(high), "default": float(default), **below}


def _help(given: dict[str, ast.expr], name: str) -> str:
    text = _constant(given.get("help"))
    text = " ".join(re.sub(r"\(?(default|Default)?:?\s*%\([a-z]+\)s\)?", "", text).split()) if type(text) is str else ""
    return text[:_HELP_MAX_CHARS] or name


def _table(values: dict[str, Any]) -> str:
    """Return an inline table of TOML; what JSON writes of these values is TOML as well."""
    return "{ " + ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()) + " }"
