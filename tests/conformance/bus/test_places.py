"""Which tests run where."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conformance.bus.conftest import DOOR, TRANSPORT


def test_every_test_that_is_listed_for_its_transport_is_there() -> None:
    trees = [ast.parse(path.read_text()) for path in Path(__file__).parent.glob("test_*.py")]
    there = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(TRANSPORT) - there == set()
    assert set(TRANSPORT) >= DOOR
