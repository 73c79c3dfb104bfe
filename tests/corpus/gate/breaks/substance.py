"""Breaks of whether what was to be measured took part (G3)."""

from __future__ import annotations

from tests.corpus.gate.breaks.registry import PASSES, breaks, candidate, honest
from tests.corpus.gate.builders import Case


@breaks("G3-PROBE", "probe")
def _(case: Case) -> None:
    case.report["rows"]["checks"][1]["ok"] = False


@breaks("G3-FALLBACKS")
def _(case: Case) -> None:
    case.report["fallbacks"].append(
        {"arm": "speculative", "component": "drafter", "sample": "9/9/speculative/x", "reason": "none left", "count": 1}
    )


@breaks("G3-IDLE")
def _(case: Case) -> None:
    assert any(0 in sample["drafted_per_step"] for sample in candidate(case)["samples"])


PASSES["G3-IDLE"] = lambda: honest("probe")


@breaks("G3-SELF")
def _(case: Case) -> None:
    candidate(case)["code_path"] = case.report["arms"][0]["code_path"]


@breaks("G3-ACCELERATOR")
def _(case: Case) -> None:
    case.report["environment"]["device"] = "metal"
    case.record["host"]["devices"] = ["Apple M4"]
    for sample in case.record["telemetry"]["samples"]:
        sample["gpu_share"] = 0.0
