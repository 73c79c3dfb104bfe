"""Figures of the source itself: rooms, circles, class names, lines."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bridge", "engine")
ROOM_MAX = 12
TABLES = ("bridge/gate/rules", "bridge/gate/kinds", "bridge/presets", "engine/studies")
"""Folders that are tables: an entry a file or folder, so that adding one touches no other."""
SAME_MEANING = {
    "Arm": "what a run hands to the gate, written by the engine and read by the gate, which share no code",
    "Claim": "in the engine, what a report says to the gate",
    "Clock": "time as its side needs it: suspend-counting for leases, device-synchronised for measurements",
    "Report": "what a run hands to the gate, written by the engine and read by the gate, which share no code",
    "UsageError": "each program's own tree of errors",
}
"""Class names that bridge and engine both define for one thing, with the reason."""


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text("utf-8"))


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the path of every product module by its dotted name; a package is its `__init__`."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def rooms(root: Path = ROOT) -> dict[str, int]:
    """Return how many modules each folder holds, its `__init__` apart."""
    paths = (path for path in modules(root).values() if path.name != "__init__.py")
    return dict(Counter(str(path.parent.relative_to(root)) for path in paths))


def full_rooms(root: Path = ROOT) -> dict[str, int]:
    """Return the folders that hold more than a dozen modules; tables may."""
    tables = tuple(f"{table}/" for table in TABLES)
    return {
        room: count for room, count in rooms(root).items() if count > ROOM_MAX and not f"{room}/".startswith(tables)
    }


def lines(package: str, root: Path = ROOT) -> int:
    """Return the lines of a package's Python files."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in (root / package).rglob("*.py"))


def imports(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Return the product modules that a module imports, inside functions too.

    Args:
        path: the module.
        known: all product modules.
    """
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in below}
    return found & known.keys()


def circles(root: Path = ROOT) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or not; a package's face is no module of it."""
    known = modules(root)
    faces = {name for name, path in known.items() if path.name == "__init__.py"}
    edges = {name: imports(path, known) - faces - {name} for name, path in known.items()}
    reach = {name: _reached(name, edges) for name in edges}
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in edges}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Return what can be reached from a module in one step or more; the module itself only by a circle."""
    found: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges[name]
    return found


def class_names_with_two_meanings(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the modules of each class name that several modules define for different things.

    Private names are their module's own. The array libraries mirror each other: a class of both backends is one.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name, path in modules(root).items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                mirrored = name.replace("engine.backends.mlx.", "engine.backends.torch.")
                if mirrored not in found[node.name]:
                    found[node.name].append(mirrored)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1 and name not in SAME_MEANING}


def layer_contracts(root: Path = ROOT) -> list[str]:
    """Return the names of import-linter's `layers` contracts."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    contracts = table["tool"]["importlinter"]["contracts"]
    return [contract["name"] for contract in contracts if contract["type"] == "layers"]
