"""One planted fault: a slip in one symbol, as text to be replaced."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "faults"
PACKAGES = ("bridge", "engine")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class FaultGone(Exception):
    """A fault's symbol or snippet is not in the tree exactly once."""


@dataclass(frozen=True)
class Fault:
    """A plausible slip of one symbol.

    Attributes:
        name: unique, what the report calls it.
        room: whose tests should find it; the stem of its table's file.
        symbol: qualified name of a function, method, class or module-level name under bridge/ or engine/.
        old: text inside the symbol, there exactly once.
        new: what replaces it.
        why: what goes wrong for a user.
        hint: text elsewhere in the symbol's module, where several modules have a symbol of this name.
        look: test files that are likely to find it, tried first.
    """

    name: str
    room: str
    symbol: str
    old: str
    new: str
    why: str
    hint: str = ""
    look: tuple[str, ...] = ()

    def planted(self, tree: Path) -> tuple[Path, str]:
        """Return the module this fault lives in and its text with the fault in it.

        Raises:
            FaultGone: no symbol, or more than one, holds the snippet; or the result is no Python.
        """
        modules = _modules(tree)
        places = [(path, at) for path, text in modules.items() for at in self._places(text)]
        if len(places) != 1:
            where = ", ".join(sorted({str(path.relative_to(tree)) for path, _ in places})) or "nowhere"
            raise FaultGone(
                f"fault no longer applies: {self.name}: got {len(places)} places ({where}) where {self.symbol} "
                f"holds {self.old!r}, expected 1; mend its entry in tests/planted/faults/{self.room}.toml"
            )
        path, at = places[0]
        text = modules[path]
        changed = text[:at] + self.new + text[at + len(self.old) :]
        try:
            compile(changed, str(path), "exec")
        except SyntaxError as error:
            raise FaultGone(f"fault no longer applies: {self.name}: {path.name} does not compile: {error}") from error
        return path, changed

    def _places(self, text: str) -> Iterator[int]:
        """Yield where the snippet begins in a module's text, for every symbol of this name."""
        if self.old not in text or self.hint not in text:
            return
        lines = text.splitlines(keepends=True)
        for first, last in _spans(ast.parse(text), self.symbol):
            start = sum(map(len, lines[: first - 1]))
            source = "".join(lines[first - 1 : last])
            at = source.find(self.old)
            while at >= 0:
                yield start + at
                at = source.find(self.old, at + 1)


def faults() -> list[Fault]:
    """Return the table, room by room.

    Raises:
        ValueError: two faults have one name, or a fault changes nothing.
    """
    table: list[Fault] = []
    for file in sorted(TABLE.glob("*.toml")):
        for entry in tomllib.loads(file.read_text())["fault"]:
            table.append(Fault(room=file.stem, **entry | {"look": tuple(entry.get("look", ()))}))
    names = [fault.name for fault in table]
    twice = {name for name in names if names.count(name) > 1} | {
        fault.name for fault in table if fault.old == fault.new
    }
    if twice:
        raise ValueError(f"expected one name a fault and a change by each, got {sorted(twice)}")
    return table


@cache
def _modules(tree: Path) -> dict[Path, str]:
    """Return a tree's modules as they are before the first fault."""
    paths = [path for package in PACKAGES for path in sorted((tree / package).rglob("*.py"))]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def _spans(module: ast.Module, symbol: str) -> Iterator[tuple[int, int]]:
    """Yield first and last line of every definition of a qualified name, decorators included."""
    for name, node in _named(module, ""):
        if name == symbol:
            decorators = getattr(node, "decorator_list", [])
            yield min([node.lineno, *(decorator.lineno for decorator in decorators)]), node.end_lineno or node.lineno


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield prefix + child.name, child
            yield from _named(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from ((prefix + target.id, child) for target in targets if isinstance(target, ast.Name))
        elif isinstance(child, ast.stmt):
            yield from _named(child, prefix)
