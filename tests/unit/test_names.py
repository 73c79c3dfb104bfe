"""A name says what it holds: no placeholder is bound to a value, but in folders that are still to be redone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.drift import ROOT

PLACEHOLDERS = frozenset(["one", "found", "said", "known", "asked", "seen", "wanted", "kept", "held", "told", "came"])
WORD = re.compile(rf"\b_*(?:{'|'.join(PLACEHOLDERS)})\b")
TEXT = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'")
"""Comments and what stands in quotes: nine files of ten have the words there alone, and need not be parsed."""
SOURCES = ("bridge", "engine", "tests", "benchmarks", "examples", "runner-setup")
EXEMPT = (
    "bridge/gate",
    "bridge/runner",
    "engine/backends",
    "engine/distributed",
    "engine/restoration",
    "engine/studies",
)
"""Folders whose names are still to be redone. One that is clean is taken off."""


def bound_placeholders(source: str) -> list[tuple[int, str]]:
    """Return line and name of every placeholder that the source binds to a value.

    Read are all targets of an assignment, also of attributes, loops, comprehensions, `with`, walrus and `match`,
    caught exceptions, imported names, arguments and fields. A field of a class that derives from another one is left
    out, as records and reports do: it may be a key that is written, which is renamed when its schema changes.
    """
    if WORD.search(TEXT.sub("", source)) is None:
        return []
    tree = ast.parse(source)
    keys = {id(field.target) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for field in _keys(node)}
    return sorted(
        (line, name)
        for node in ast.walk(tree)
        if id(node) not in keys
        for line, name in _bindings(node)
        if name.lstrip("_") in PLACEHOLDERS
    )


def _keys(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    """Yield the fields of a class that may be keys of a record or report: it derives from a class that writes them."""
    if node.bases:
        yield from (field for field in node.body if isinstance(field, ast.AnnAssign))


def _bindings(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield node.lineno, name
        case ast.arg(arg=name):
            yield node.lineno, name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield node.lineno, name
        case ast.alias(asname=str(name)):
            yield node.lineno, name


def test_no_placeholder_is_bound_where_the_names_were_redone() -> None:
    exempt = tuple(ROOT / folder for folder in EXEMPT)
    paths = (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py")))
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in paths
        if not any(path.is_relative_to(folder) for folder in exempt)
        for line, name in bound_placeholders(path.read_text("utf-8"))
    ] == []


@pytest.mark.parametrize("folder", EXEMPT)
def test_an_exempt_folder_is_there_and_is_not_clean(folder: str) -> None:
    path = ROOT / folder
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert any(bound_placeholders(file.read_text("utf-8")) for file in files), f"take {folder} off the list"


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "self.found = 1",
        "_said = 1",
        "for one in ():\n    pass",
        "[one for one in ()]",
        "{one: 1 for one, _ in ()}",
        "with f() as held:\n    pass",
        "try:\n    pass\nexcept OSError as told:\n    pass",
        "if (seen := 1):\n    pass",
        "def f(known):\n    pass",
        "def f(*, wanted):\n    pass",
        "def f(*kept):\n    pass",
        "lambda asked: 1",
        "match x:\n    case [*came]:\n        pass",
        "import re as one",
        "class A:\n    kept: int",
    ],
)
def test_a_planted_placeholder_is_found(source: str) -> None:
    assert len(bound_placeholders(source)) >= 1


@pytest.mark.parametrize(
    "source", ["class A(Record):\n    kept: int", "f(one=1)", "x.known", "{'found': 1}", "ones = 1"]
)
def test_a_key_and_a_use_are_no_binding(source: str) -> None:
    assert bound_placeholders(source) == []
