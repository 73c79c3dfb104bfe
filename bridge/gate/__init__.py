"""The evidence gate: reports, RunRecord and JobSpec in, a Verdict out.

A number may be quoted only if the verdict says `evidence`. Pure: knows no file, process, clock or network; the same
code judges on the host, at the requester and in CI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.gate.identity import identity  # at once: the module has the same name
from bridge.lazy import importing

if TYPE_CHECKING:
    from bridge.gate.catalogue import explain, printed_words, rules_catalogue
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
    "printed_words",
    "rules_catalogue",
]

_MODULES = {
    "catalogue": "explain printed_words rules_catalogue",
    "comparability": "MeasuredRun",
    "comparison": "Comparison compare",
    "judging": "judge judge_bytes",
}
__getattr__ = importing(__name__, _MODULES)
