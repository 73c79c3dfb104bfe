"""Every import of this repository, and whether there is something behind it: read from the sources, hardly ever run.

Most files are parsed and never imported, so that an import inside a function, under ``TYPE_CHECKING`` or in a test for
hardware that is not here counts like any other. Knows nothing about which imports may be missing.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from pathlib import Path

_EVERY_MODULE = frozenset({"__doc__", "__file__", "__name__", "__package__", "__path__", "__spec__"})
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CALLS = frozenset({"import_module", "importorskip"})


@dataclass(frozen=True)
class Import:
    """One name that a file imports.

    Attributes:
        file: the file, relative to the repository.
        line: where, from 1.
        module: dotted and absolute.
        name: what of the module; None for the module itself.
    """

    file: str
    line: int
    module: str
    name: str | None = None


@dataclass(frozen=True)
class Source:
    """What a file imports and what its own text binds at its top level.

    Attributes:
        imports: the former, those inside functions too.
        names: the latter, in the branches of conditions too.
        stars: modules of which it takes every public name.
        lazy: whether it has a ``__getattr__``, which may answer for more.
        opaque: whether it changes its names in ways that its text does not say.
    """

    imports: tuple[Import, ...]
    names: frozenset[str]
    stars: tuple[str, ...]
    lazy: bool
    opaque: bool


def read(path: Path, file: str) -> Source:
    """Parse a file.

    Args:
        path: where it is.
        file: its path below the folder that its imports start from.
    """
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    package = Path(file).parent.parts
    imported = tuple(_imports(tree, file, package, calls=any(f"{call}(" in text for call in _CALLS)))
    names: set[str] = set()
    stars: list[str] = []
    for node in _statements(tree.body, scopes=False):
        if isinstance(node, _SCOPES):
            names.add(node.name)
        elif isinstance(node, ast.Import):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names if alias.name != "*")
            stars += [_absolute(node, package) for alias in node.names if alias.name == "*"]
        else:
            names.update(_assigned(node))
    opaque = "globals()" in text or "sys.modules" in text
    return Source(imported, frozenset(names), tuple(stars), "__getattr__" in names, opaque)


def _statements(body: Iterable[ast.AST], *, scopes: bool) -> Iterator[ast.stmt]:
    """Yield the statements of a body and of the blocks in it; those of functions and classes where asked for."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if scopes or not isinstance(node, _SCOPES):
            for field in _BLOCKS:
                yield from _statements(getattr(node, field, ()), scopes=scopes)


def _imports(tree: ast.Module, file: str, package: tuple[str, ...], *, calls: bool) -> Iterator[Import]:
    for node in _statements(tree.body, scopes=True):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            for alias in node.names:
                yield Import(file, node.lineno, module, None if alias.name == "*" else alias.name)
    for call in ast.walk(tree) if calls else ():
        match call:
            case ast.Call(
                func=ast.Attribute(attr=name) | ast.Name(id=name), args=[ast.Constant(value=str(module)), *_]
            ):
                if name in _CALLS:
                    yield Import(file, call.lineno, module)


def _absolute(node: ast.ImportFrom, package: tuple[str, ...]) -> str:
    """Return the dotted name of the module that a statement in a package imports from."""
    base = package[: len(package) - node.level + 1] if node.level else ()
    return ".".join((*base, *((node.module,) if node.module else ())))


def _assigned(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement itself assigns, not those of the blocks in it."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field not in _BLOCKS and isinstance(child, ast.AST):
                names = (part for part in ast.walk(child) if isinstance(part, ast.Name))
                yield from (name.id for name in names if isinstance(name.ctx, ast.Store))


@dataclass(frozen=True)
class Module:
    """Where a module lies.

    Attributes:
        file: its source or its compiled file; None for a folder without an ``__init__`` and for what is built in.
        folders: where the modules below it are.
        ours: whether it belongs to the repository.
    """

    file: Path | None
    folders: tuple[Path, ...]
    ours: bool


@cache
def _entries(folder: Path) -> frozenset[str]:
    return frozenset(entry.name for entry in folder.iterdir()) if folder.is_dir() else frozenset()


def _find_in(folders: Iterable[Path], word: str, *, ours: bool) -> Module | None:
    """Return the module of this name in the first folder that has one, as the import system would."""
    for folder in folders:
        entries = _entries(folder)
        if word in entries and (inside := _entries(folder / word)):
            inits = [folder / word / f"__init__{suffix}" for suffix in all_suffixes() if f"__init__{suffix}" in inside]
            return Module(inits[0] if inits else None, (folder / word,), ours)
        for suffix in all_suffixes():
            if f"{word}{suffix}" in entries:
                return Module(folder / f"{word}{suffix}", (), ours)
    return None


def _find_installed(word: str) -> Module | None:
    """Return a package of the standard library or of the environment."""
    spec = find_spec(word)
    if spec is None:
        return None
    file = Path(spec.origin) if spec.has_location and spec.origin is not None else None
    return Module(file, tuple(Path(folder) for folder in spec.submodule_search_locations or ()), ours=False)


class Resolver:
    """Looks up modules and their names, without running them where their text says enough.

    Only the standard library is imported.
    """

    def __init__(self, root: Path, *others: Path) -> None:
        """Remember where the repository's own packages start.

        Args:
            root: the folder that the paths of imports are relative to.
            others: folders that are searched after it.
        """
        self._roots = (root, *others)
        self._modules: dict[str, Module | None] = {}
        self._sources: dict[Path, Source] = {}

    def read(self, path: Path, file: str) -> Source:
        """Return what a file imports and binds, parsed once."""
        if path not in self._sources:
            self._sources[path] = read(path, file)
        return self._sources[path]

    def problem(self, item: Import) -> str | None:
        """Return one line that says what is not there, or None where all of an import is."""
        module = self._find(item.module)
        if module is None:  # a script finds what lies in its own folder
            module = _find_in([(self._roots[0] / item.file).parent], item.module, ours=True)
        if module is None:
            return f"{item.file}:{item.line}: there is no module {item.module}"
        if item.name is None or self._has(module, item.module, item.name):
            return None
        return f"{item.file}:{item.line}: {item.module} has no {item.name}"

    def _find(self, dotted: str) -> Module | None:
        if dotted not in self._modules:
            above, _, word = dotted.rpartition(".")
            if above:
                parent = self._find(above)
                module = _find_in(parent.folders, word, ours=parent.ours) if parent is not None else None
                if module is None and dotted == "os.path":  # no file of a package
                    module = _find_installed(os.path.__name__)
            else:
                module = _find_in(self._roots, word, ours=True) or _find_installed(word)
            self._modules[dotted] = module
        return self._modules[dotted]

    def _has(self, module: Module, dotted: str, name: str) -> bool:
        """Whether a module binds a name, or is a package with a module of this name."""
        return name in _EVERY_MODULE or self._binds(module, dotted, name) or self._find(f"{dotted}.{name}") is not None

    def _binds(self, module: Module, dotted: str, name: str) -> bool:
        if dotted.partition(".")[0] in sys.stdlib_module_names:
            return hasattr(import_module(dotted), name)
        if module.file is None:
            return False
        if module.file.suffix != ".py":
            return True  # compiled: only running it would tell
        stub = module.file.with_suffix(".pyi")  # of generated code, which binds its names by a call
        path = stub if module.ours and stub.is_file() else module.file
        base = dotted.replace(".", "/")
        source = self.read(path, f"{base}/__init__.py" if module.folders else f"{base}.py")
        if not module.ours and (source.lazy or source.opaque or source.stars):
            return True
        stars = ((self._find(place), place) for place in source.stars)
        return name in source.names or any(star is not None and self._has(star, place, name) for star, place in stars)
