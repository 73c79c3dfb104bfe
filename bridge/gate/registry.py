"""Find the rules: each module of `bridge.gate.rules` holds one.

Knows neither what a rule checks nor what a verdict is.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from bridge.gate import rules as _rules
from bridge.gate.rule import RegisteredRule


@cache
def rules() -> Mapping[str, RegisteredRule]:
    """Return every rule by code, in the order they run: by layer, then required rules first, then by code."""
    found: dict[str, RegisteredRule] = {}
    for module in pkgutil.iter_modules(_rules.__path__):
        held = vars(import_module(f"{_rules.__name__}.{module.name}")).values()
        (entry,) = (value for value in held if isinstance(value, RegisteredRule))
        found[entry.code] = entry
    ordered: dict[str, RegisteredRule] = {}
    for code in sorted(found):
        _place(code, found, ordered)
    return {code: ordered[code] for code in sorted(ordered, key=lambda code: (code[:2], list(ordered).index(code)))}


def _place(code: str, found: Mapping[str, RegisteredRule], ordered: dict[str, RegisteredRule]) -> None:
    if code in ordered:
        return
    for required in found[code].requires:
        _place(required, found, ordered)
    ordered[code] = found[code]
