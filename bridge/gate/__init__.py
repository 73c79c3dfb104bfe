"""The evidence gate: reports, RunRecord and JobSpec in, a Verdict out.

A number may be quoted only if the verdict says `evidence`. Pure: knows no file, process, clock or network; the same
code judges on the host, at the requester and in CI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bridge.gate.identity import identity  # at once: the module has the same name

if TYPE_CHECKING:
    from bridge.gate.catalogue import explain, needs, rules_catalogue
    from bridge.gate.comparability import MeasuredRun
    from bridge.gate.comparison import Comparison, compare
    from bridge.gate.judging import judge, judge_bytes

__all__ = [
    "Comparison",
    "MeasuredRun",
    "compare",
    "explain",
    "identity",
    "judge",
    "judge_bytes",
    "needs",
    "rules_catalogue",
]

_MODULES = {
    "catalogue": "explain needs rules_catalogue",
    "comparability": "MeasuredRun",
    "comparison": "Comparison compare",
    "judging": "judge judge_bytes",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Return what the gate offers, its module imported now: whoever reads a kind's name needs no rule."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found
