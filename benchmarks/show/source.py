"""Figures of the source itself: rooms, circles, class names, lines."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Module:
    """What the figures need of a module; its syntax tree would hold thousands of times as many objects.

    Attributes:
        imports: (module, name) of every import, inside functions too; no name for `import module`.
        classes: names of its public classes.
    """

    imports: tuple[tuple[str, str | None], ...]
    classes: tuple[str, ...]


@cache
def read_module(path: Path) -> Module:
    """Read a module's imports and classes."""
    tree = ast.parse(path.read_text("utf-8"))
    found: list[tuple[str, str | None]] = []
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [(node.module, alias.name) for alias in node.names]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return Module(tuple(found), tuple(classes))


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement below a node; expressions, most of a tree, hold none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        children = getattr(node, field, None)
        for child in children if isinstance(children, list) else ():
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


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
    for module, name in read_module(path).imports:
        below = f"{module}.{name}"
        found.add(below if name is not None and below in known else module)
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
        mirrored = name.replace("engine.backends.mlx.", "engine.backends.torch.")
        for one in read_module(path).classes:
            if mirrored not in found[one]:
                found[one].append(mirrored)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1 and name not in SAME_MEANING}


def layer_contracts(root: Path = ROOT) -> list[str]:
    """Return the names of import-linter's `layers` contracts."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    contracts = table["tool"]["importlinter"]["contracts"]
    return [contract["name"] for contract in contracts if contract["type"] == "layers"]
