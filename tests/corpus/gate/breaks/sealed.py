"""Breaks of the sealed tree, and of who judges it (G9)."""

from __future__ import annotations

from tests.corpus.gate.breaks.registry import BREAKS, PASSES, breaks, honest
from tests.corpus.gate.builders import Case, sha


@breaks("G9-OUTPUTS")
def _(case: Case) -> Case:
    case.seal()
    case.raw["report.json"] = case.files()["report.json"] + b" "
    case.seal = lambda: case  # type: ignore[method-assign]
    return case


@breaks("G9-CAPS")
def _(case: Case) -> None:
    case.raw["large.txt"] = b" " * (33 << 20)
    case.spec["outputs"].append({"path": "large.txt", "kind": "text", "required": True})
    case.record["outputs"].append({"path": "large.txt", "bytes": 0, "sha256": "", "after_start": True})


@breaks("G9-GATE")
def _(case: Case) -> None:
    case.record["gate_digest"] = sha("another gate")


def _unattested() -> Case:
    return honest("claim")


BREAKS["G2-AUTHORITY"] = _unattested
PASSES["G2-AUTHORITY"] = _unattested
