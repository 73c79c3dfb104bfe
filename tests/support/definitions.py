"""What a Python file of this repository defines, without importing it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def defines(path: str, name: str) -> bool:
    """Return whether a file defines a function or a class of this name, or a method written ``Class.method``."""
    file = ROOT / path
    if not file.is_file():
        return False
    scope: list[ast.stmt] = ast.parse(file.read_text("utf-8")).body
    for word in name.split("."):
        definition = next((node for node in scope if isinstance(node, DEFINITIONS) and node.name == word), None)
        if definition is None:
            return False
        scope = definition.body
    return True
