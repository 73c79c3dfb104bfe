"""Find the rules: those of several kinds in `bridge.gate.rules`, those of one kind in `bridge.gate.kinds.<kind>`.

Knows neither what a rule checks nor what a verdict is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import ModuleType

from bridge.gate.report_kinds import KINDS
from bridge.gate.rule import RegisteredRule


@cache
def rules() -> Mapping[str, RegisteredRule]:
    """Return every rule by code, in the order they run."""
    found = [entry for module in _modules() for entry in vars(module).values() if isinstance(entry, RegisteredRule)]
    return {entry.code: entry for entry in sorted(found, key=lambda entry: entry.code)}


def _modules() -> Iterator[ModuleType]:
    for item in files("bridge.gate.rules").iterdir():
        if item.name.endswith(".py"):
            yield import_module(f"bridge.gate.rules.{item.name.removesuffix('.py')}")
    for kind in KINDS:
        yield import_module(f"bridge.gate.kinds.{kind}")
