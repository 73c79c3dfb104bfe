"""Breaks of rows: order, tokens, times, marks and what is computed from them (G4)."""

from __future__ import annotations

import copy

from tests.corpus.gate.breaks.registry import breaks, candidate, samples
from tests.corpus.gate.builders import Case
from tests.corpus.gate.generations import with_claims


@breaks("G4-WINDOW")
def _(case: Case) -> None:
    case.report["started_at"] = "2026-11-18T09:00:00.000Z"


@breaks("G4-CLAIM")
def _(case: Case) -> None:
    case.report["arms"].append(copy.deepcopy(case.report["arms"][-1]))


@breaks("G4-PROBE", "probe")
def _(case: Case) -> None:
    case.report["rows"]["matmul"][0]["gflop_per_s"] *= 1.01


@breaks("G4-TESTS", "suite")
def _(case: Case) -> None:
    case.report["rows"]["tests"][0].update(outcome="failed", reason="assert 1 == 2")


@breaks("G4-ARMS")
def _(case: Case) -> None:
    case.report["arms"][0]["role"] = "control"


@breaks("G4-ROWS")
def _(case: Case) -> None:
    samples(case)[0]["expected"] = "another answer than in the other arms"


@breaks("G4-ORDER")
def _(case: Case) -> None:
    first, second = (arm["samples"] for arm in case.report["arms"])
    pair = [s for s in (*first, *second) if s["prompt_id"] == first[2]["prompt_id"]]
    pair[0]["order_index"], pair[1]["order_index"] = pair[1]["order_index"], pair[0]["order_index"]


@breaks("G4-PROMPTS")
def _(case: Case) -> None:
    case.report["prompts"].popitem()


@breaks("G4-TOKENS")
def _(case: Case) -> None:
    samples(case)[0]["tokens"][3] = case.report["config"]["target"]["vocab_size"]


@breaks("G4-STAGES")
def _(case: Case) -> None:
    samples(case)[0]["stages"]["prefill_s"] = 0.0


@breaks("G4-STEPS")
def _(case: Case) -> None:
    candidate(case)["samples"][1]["accepted_per_step"][0] += 1


@breaks("G4-MARKS")
def _(case: Case) -> None:
    for sample in candidate(case)["samples"]:
        sample["stages"]["decode_s"] *= 0.5
        sample["stages"]["total_s"] = sample["stages"]["prefill_s"] + sample["stages"]["decode_s"]
    with_claims(case)


@breaks("G4-MARGIN")
def _(case: Case) -> None:
    candidate(case)["samples"][1]["top2_margin_at_divergence"] = 0.25


@breaks("G4-MEMORY")
def _(case: Case) -> None:
    samples(case)[0]["memory"]["kv_bytes"] = 0


@breaks("G4-CONFIG")
def _(case: Case) -> None:
    case.report["config"]["dtype"] = "bfloat16"


@breaks("G4-ANSWERS")
def _(case: Case) -> None:
    samples(case)[0]["expected"] = " "
