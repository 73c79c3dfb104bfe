"""`make bench` runs every module that measures something, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks import quick
from benchmarks.__main__ import BENCHMARKS


def offers_measure(path: Path) -> bool:
    functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return "measure" in functions


def test_every_module_that_measures_is_listed_with_what_it_measures():
    (folder,) = quick.__path__
    assert {path.stem for path in Path(folder).glob("*.py") if offers_measure(path)} == set(BENCHMARKS)
    assert all(BENCHMARKS.values())
