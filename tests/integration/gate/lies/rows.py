"""Fewer rows than there were, more, or others."""

from __future__ import annotations

import copy

from tests.integration.gate.lies.registry import lie, measured, rows, told
from tests.integration.gate.workload import Behaviour, Report, state_ratio


@told("the-slowest-prompt-dropped", "G4-MARKS", "G4-ORDER", fell="times")
def _(report: Report) -> None:
    slow = max(measured(report), key=lambda row: row["stages"]["decode_s"])["prompt_id"]
    for arm in report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["prompt_id"] != slow]
    sample_ids = {row["id"] for row in rows(report)}
    report["fallbacks"] = [row for row in report["fallbacks"] if row["sample"] in sample_ids]
    state_ratio(report)


@lie("fewer-prompts-than-the-design", "G4-ORDER", fell="inputs")
def _() -> Behaviour:
    return Behaviour(prompts=5)


@told("a-row-counted-twice", "G4-ROWS", fell="inputs")
def _(report: Report) -> None:
    fast = min(measured(report), key=lambda row: row["stages"]["decode_s"])
    rows(report).append(copy.deepcopy(fast))
    state_ratio(report)


@told("warm-ups-counted-in", "G4-ORDER", fell="inputs")
def _(report: Report) -> None:
    for arm in (0, 1):
        for row in rows(report, arm):
            row["is_warmup"] = False
    state_ratio(report)


@told("an-order-that-was-chosen", "G4-ORDER", fell="inputs")
def _(report: Report) -> None:
    first, second = measured(report, 0)[0], measured(report, 1)[0]
    first["order_index"], second["order_index"] = second["order_index"], first["order_index"]
    for row, arm in ((first, "autoregressive"), (second, "speculative")):
        row["id"] = f"0/{row['order_index']}/{arm}/{row['prompt_id']}"


@told("counters-that-do-not-add-up", decision="valid", reason="passed")
def _(report: Report) -> None:
    for row in rows(report):
        row["counters"]["accepted_tokens"] += 9
