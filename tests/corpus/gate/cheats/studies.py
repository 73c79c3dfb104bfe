"""Cheats in the other kinds of report."""

from __future__ import annotations

from typing import Any

from tests.corpus.gate.breaks import samples
from tests.corpus.gate.builders import Case, sha, state_claims
from tests.corpus.gate.cheats.generations import plain_steps
from tests.corpus.gate.cheats.registry import cheat
from tests.corpus.gate.generations import ROW_BYTES


@cheat("a rung whose name holds that of the one in process, and that never called", "G4-RPCS", "distributed_e2e")
def _(case: Case) -> Case:
    old, new = "loopback", "loopback, not in-process"
    for arm in case.report["arms"]:
        arm["name"] = new if arm["name"] == old else arm["name"]
    rows = case.report["rows"]
    for row in rows["drafts"]:
        row["arm"] = new if row["arm"] == old else row["arm"]
    rows["rpcs"] = []
    return state_claims(case)


def _calls(case: Case, arm: str) -> Any:
    return next(row for row in case.report["rows"]["rpcs"] if row["arm"] == arm)


@cheat("a second link that is shorter than its name", "G4-RPCS", "distributed_bench")
def _(case: Case) -> Case:
    row = _calls(case, "rtt-50ms")
    row["round_trips_s"] = [0.0003] * len(row["round_trips_s"])
    return state_claims(case)


@cheat("drafts that come sooner than their link", "G4-RPCS", "distributed_bench")
def _(case: Case) -> Case:
    row = _calls(case, "rtt-50ms")
    row.update(seconds=[0.0031] * len(row["seconds"]))
    return state_claims(case)


@cheat("calls that take longer together than their arm", "G4-RPCS", "distributed_bench")
def _(case: Case) -> Case:
    row = _calls(case, "rtt-50ms")
    row.update(seconds=[2 * took_s for took_s in row["seconds"]])
    return state_claims(case)


@cheat("answers that move no byte", "G4-RPCS", "distributed_e2e")
def _(case: Case) -> Case:
    _calls(case, "loopback").update(bytes_sent=0, bytes_received=0)
    return state_claims(case)


@cheat("two digests of one draft, the agreed one last", "G6-RUNGS", "distributed_e2e", at_best="valid")
def _(case: Case) -> Case:
    drafts = case.report["rows"]["drafts"]
    other = next(row for row in drafts if row["arm"] == "loopback")
    drafts.insert(0, other | {"digest": sha("other ids")})
    return state_claims(case)


@cheat("rungs that are identical over no draft", "G6-RUNGS", "distributed_e2e", at_best="valid")
def _(case: Case) -> Case:
    for arm in case.report["arms"][1:]:
        for sample in arm["samples"]:
            plain_steps(sample)
    return state_claims(case)


@cheat("memory by formula", "G7-BUFFERS", "bounded_kv")
def _(case: Case) -> None:
    for point in case.report["rows"]["points"]:
        if point["role"] == "candidate":
            point["kv_bytes"] //= 16


@cheat("memory measured before the first decode step", "G0-SCHEMA", "bounded_kv")
def _(case: Case) -> None:
    case.report["rows"]["points"][0]["decode_steps"] = 0


@cheat("a restoration that injects nothing", "G3-CANARY", "f_theta_training")
def _(case: Case) -> None:
    case.report["rows"]["canaries"]["noise_logit_change"] = 0.0


@cheat("held-out sequences that were trained on", "G4-TRAINING", "f_theta_training")
def _(case: Case) -> None:
    rows = case.report["rows"]
    rows["training_digests"].append(rows["held_out"][0]["sequence_digest"])


@cheat("an answer nobody could miss", "G4-ANSWERS", "needle_recall")
def _(case: Case) -> None:
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample.update(expected="", correct=True)


@cheat("answers scored by the harness alone", "G2-RECOMPUTED", "needle_recall")
def _(case: Case) -> None:
    samples(case, 2)[0]["text"] = "I do not know"


@cheat("every answer in the first line", "G4-ANSWERS", "needle_recall", at_best="valid")
def _(case: Case) -> None:
    every = " ".join(sorted({sample["expected"] for arm in case.report["arms"] for sample in arm["samples"]}))
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample.update(text=f"{every} {sample['text']}")


@cheat("forwards that only sleep", "G3-PROCESSOR", "verify_cost", at_best="valid")
def _(case: Case) -> None:
    case.record["commands"][0]["cpu_s"] = 0.02


@cheat("fewer bits than the codes take", "G4-ERRORS", base="kv_quantisation")
def _(case: Case) -> Case:
    for row in case.report["rows"]["errors"]:
        row["bits"] = 4.5
    return state_claims(case)


@cheat("eight bits without an error", "G4-ERRORS", base="kv_quantisation")
def _(case: Case) -> Case:
    for row in case.report["rows"]["errors"]:
        row["error_sq"] = 1e-30
    return state_claims(case)


@cheat("the native cache called quantised", "G3-SELF", base="kv_quantisation")
def _(case: Case) -> Case:
    case.report["arms"][1]["code_path"] = case.report["arms"][0]["code_path"]
    return state_claims(case)


@cheat("one needle in every haystack", "G4-ANSWERS", base="needle_recall")
def _(case: Case) -> Case:
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample.update(expected="100007", text="100007", correct=True)
    return state_claims(case)


@cheat("bytes set aside before the prompt", "G7-BUFFERS", base="bounded_kv")
def _(case: Case) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == "candidate":
            for name in ("allocator_idle_bytes", "allocator_active_bytes"):
                point[name] += 20_480 * point["context_tokens"]
    return state_claims(case)


@cheat("flat over three tokens", "G7-DESIGN", base="bounded_kv", at_best="valid")
def _(case: Case) -> Case:
    near = {256: 256, 512: 257, 1024: 258, 2048: 259}
    for point in case.report["rows"]["points"]:
        point["context_tokens"] = near[point["context_tokens"]]
        if point["role"] == "baseline":
            less = point["kv_bytes"] - ROW_BYTES * (point["context_tokens"] + 32)
            for name in ("kv_bytes", "kv_bytes_peak", "allocator_active_bytes"):
                point[name] -= less
    return state_claims(case)


@cheat("one loss for every sequence", "G4-TRAINING", base="f_theta_training")
def _(case: Case) -> Case:
    for row in case.report["rows"]["held_out"]:
        row.update(loss_before=2.0, loss_after=0.4)
    return state_claims(case)


@cheat("the upper layers left out", "G4-ERRORS", base="kv_quantisation")
def _(case: Case) -> Case:
    rows = case.report["rows"]
    rows["errors"] = [row for row in rows["errors"] if row["layer"] < 4]
    return state_claims(case)


@cheat("a layer that weighs more than its values", "G4-ERRORS", base="kv_quantisation")
def _(case: Case) -> Case:
    for row in case.report["rows"]["errors"]:
        row["values"] *= 1 if row["layer"] else 50
    return state_claims(case)


@cheat("a native cache inflated in buffers and allocator alike", "G7-NATIVE", base="bounded_kv")
def _(case: Case) -> Case:
    return _scaled(case, "baseline", 4)


@cheat("a bounded cache that keeps less than it says", "G7-NATIVE", base="bounded_kv")
def _(case: Case) -> Case:
    return _scaled(case, "candidate", 0.25)


@cheat("a layout of no name", "G7-NATIVE", base="bounded_kv", at_best="valid")
def _(case: Case) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == "candidate":
            point["arm"] = "magic"
    return state_claims(case)


@cheat("a native cache that a quantised one is measured against", "G7-NATIVE", base="kv_quantisation")
def _(case: Case) -> Case:
    for sample in case.report["arms"][0]["samples"]:
        for name in ("kv_bytes", "kv_bytes_peak", "allocator_active_bytes"):
            sample["memory"][name] *= 40
    return state_claims(case)


@cheat("the native cache under a quantised name", "G7-NATIVE", base="kv_quantisation")
def _(case: Case) -> Case:
    native, quantised = (arm["samples"] for arm in case.report["arms"])
    native_bytes = {sample["prompt_id"]: sample["memory"]["kv_bytes"] for sample in native}
    for sample in quantised:
        sample["memory"]["kv_bytes"] = native_bytes[sample["prompt_id"]] + ROW_BYTES * 200
        sample["memory"]["kv_bytes_peak"] = sample["memory"]["kv_bytes"]
        sample["memory"]["allocator_active_bytes"] = 14_000_000 + sample["memory"]["kv_bytes"]
    return state_claims(case)


def _scaled(case: Case, role: str, factor: float) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == role:
            more = int(point["kv_bytes"] * factor) - point["kv_bytes"]
            for name in ("kv_bytes", "kv_bytes_peak", "allocator_active_bytes"):
                point[name] += more
    return state_claims(case)


@cheat("a peer that answers sooner than it can multiply", "G5-PLAUSIBLE", base="request_code")
def _(case: Case) -> Case:
    names = set()
    for sample in case.report["arms"][-1]["samples"]:
        names.add(sample["id"])
        sample["stages"].update(prefill_s=1e-9, decode_s=1e-9)
    began: dict[str, float] = {}
    for mark in case.record["sample_marks"]:
        if mark["sample"] in names:
            mark["t_s"] = began.setdefault(mark["sample"], mark["t_s"])
    return state_claims(case)
