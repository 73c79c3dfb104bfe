"""Write a workload folder that already works: the owner's program, or a small one to begin with.

Parameters are read off the program's own command line where it has one; nothing of it is run.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bridge.errors import UsageError
from bridge.presets.workloads.folder import FILE

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_UNIT_MAX_CHARS: Final = 60
_PROGRAM: Final = '''"""Begin with this: draw a number from the seed, and report it."""

import argparse
import json
import os
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
options = parser.parse_args()
random.seed(int(os.environ["KAKEYA_SEED"]))
score = options.scale * sum(random.random() for _ in range(1000)) / 1000
Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps({"metrics": {"score": score}}))
'''


def write_folder(folder: Path, program: Path | None, interpreter: str, unit: str | None = None) -> tuple[Path, ...]:
    """Write a new folder; return what was written.

    Args:
        folder: absolute, not there yet.
        program: what to begin with, copied; None writes a small one.
        interpreter: absolute path of the Python that is to run it.
        unit: of the number that the program reports; None for a plain number.

    Raises:
        UsageError: the folder is there, its name is none, the program is not there, or the unit is no text of one line.
    """
    if _NAME.fullmatch(folder.name) is None:
        raise UsageError(f"got the name {folder.name!r}; expected lower-case letters, digits, - . _")
    if folder.exists():
        raise UsageError(f"{folder} is there already", remedy=f"kakeya-runner workload check {folder.name}")
    if program is not None and not program.is_file():
        raise UsageError(f"there is no program {program}", remedy="name the file that runs, e.g. --from train.py")
    if unit is not None and (not unit.strip() or not unit.isprintable() or len(unit) > _UNIT_MAX_CHARS):
        raise UsageError(f"got the unit {unit[:60]!r}; expected a word or two, e.g. --unit nats")
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    script = folder / ("train.py" if program is None else program.name)
    if program is None:
        script.write_text(_PROGRAM, "utf-8")
    else:
        shutil.copyfile(program, script)
    script.chmod(0o644 if script.suffix == ".py" else 0o755)
    file = folder / FILE
    file.write_text(_toml(folder.name, script, interpreter, unit), "utf-8")
    file.chmod(0o644)
    return (file, script)


def _toml(name: str, script: Path, interpreter: str, unit: str | None) -> str:
    text = script.read_text("utf-8", "replace") if script.suffix == ".py" else ""
    options = list(_options(text))
    metric = _metric(text)
    words = "".join(f', "--{option}", "{{{option}}}"' for option, _ in options)
    lines = [
        "schema = 1",
        f'name = "{name}"',
        "",
        "[environment]",
        f'interpreter = "{interpreter}"',
        "",
        f"[presets.{name}]",
        f'description = "Run {script.name}"',
        f'argv = ["{script.name}"{words}]',
        *(f"params.{option} = {declared}" for option, declared in options),
        "limits.wall_s = 600.0",
        "",
        f"[metrics.{metric}]",
        f'pointer = "/metrics/{metric}"',
        f"unit = {json.dumps(unit or '1', ensure_ascii=False)}",
        'better = "lower"',
        "repeats = 6",
    ]
    return "\n".join(lines) + "\n"


def _metric(text: str) -> str:
    """Return the first key that a program writes below "metrics", else ``score``."""
    found = re.search(r"[\"']metrics[\"']\s*:\s*\{\s*[\"']([a-z0-9][a-z0-9._-]{0,62})[\"']", text)
    return found[1] if found else "score"


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Yield the numeric options of a program that uses argparse, each as a declared parameter."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument" or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        name = str(node.args[0].value).removeprefix("--")
        given = {one.arg: one.value for one in node.keywords if one.arg is not None}
        kind = given.get("type")
        default = given.get("default")
        if not (isinstance(kind, ast.Name) and isinstance(default, ast.Constant) and _NAME.fullmatch(name)):
            continue
        if kind.id in {"int", "float"} and isinstance(default.value, int | float):
            yield name, _declared(name, kind.id, default.value)


def _declared(name: str, kind: str, default: float) -> str:
    """Return a parameter between a tenth and ten times its default: the owner narrows it."""
    low, high = sorted((default / 10, default * 10)) if default else (0, 1)
    said = f'help = "{name}" }}'
    if kind == "int":
        return f'{{ type = "int", min = {int(low)}, max = {max(int(high), 1)}, default = {int(default)}, {said}'
    low, high, default = float(low), float(high), float(default)
    return f'{{ type = "float", min = {low!r}, max = {high!r}, default = {default!r}, {said}'
