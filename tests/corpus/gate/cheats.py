"""Cheats made by hand, each with the rule that must refuse it; the seed's own failures come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.corpus.gate.breaks import candidate, honest, retoken, samples
from tests.corpus.gate.builders import Case, state_claims
from tests.corpus.gate.generations import ROW_BYTES, Plan, code_throughput, with_claims

CHEATS: dict[str, tuple[str, str, Callable[[], Case]]] = {}
"""Name to (rule, worst decision it may still get, builder)."""


def cheat(
    name: str, rule: str, base: str = "claim", at_best: str = "rejected"
) -> Callable[[Callable[[Case], Any]], None]:
    def register(change: Callable[[Case], Any]) -> None:
        def build() -> Case:
            case = honest(base)
            return (change(case) or case).seal()

        CHEATS[name] = (rule, at_best, build)

    return register


def plain_steps(sample: dict[str, Any]) -> None:
    steps = sample["output_tokens"] - 1
    sample["accepted_per_step"], sample["drafted_per_step"] = [0] * steps, [0] * steps
    zero = dict.fromkeys(sample["counters"], 0)
    sample["counters"] = {**zero, "steps": steps, "target_forwards": steps, "host_syncs": steps + 1}


@cheat("fused with zero blocks run", "G3-DRAFTER")
def _(case: Case) -> None:
    case.report["fallbacks"] = []
    for sample in candidate(case)["samples"]:
        plain_steps(sample)


@cheat("zero blocks run, every step excused", "G3-SELF")
def _(case: Case) -> None:
    rows = []
    for sample in sorted(candidate(case)["samples"], key=lambda s: (s["launch"], s["order_index"])):
        plain_steps(sample)
        from bridge.gate.facts.samples import expected_drafts

        idle = sum(1 for asked in expected_drafts(sample, case.report["config"]) or [] if asked)
        if idle:
            row = {"arm": "speculative", "component": "drafter", "sample": sample["id"], "reason": "the policy said so"}
            rows.append({**row, "count": idle})
    case.report["fallbacks"] = rows


@cheat("a baseline compared with itself", "G3-SELF")
def _(case: Case) -> None:
    candidate(case)["code_path"] = case.report["arms"][0]["code_path"]


@cheat("a baseline that is not the library's own decoding", "G4-CONFIG")
def _(case: Case) -> None:
    for arm in case.report["arms"][:2]:
        arm["code_path"] = "engine.decoding.autoregressive:autoregressive"


@cheat("identical work whose times range fourfold", "G5-SPREAD", at_best="valid")
def _(case: Case) -> Case:
    return code_throughput(Plan(noise=0.5))


@cheat("outputs that differ in three of eight", "G6-IDENTITY", at_best="valid")
def _(case: Case) -> None:
    for index, sample in enumerate(samples(case, 2)):
        if index % 8 < 3:
            retoken(case, sample, [*sample["tokens"][:-2], 77, sample["tokens"][-1]])
            sample["top2_margin_at_divergence"] = 0.5


@cheat("the warm-up prompt counted", "G5-WARMUP")
def _(case: Case) -> None:
    for arm in case.report["arms"]:
        next(sample for sample in arm["samples"] if sample["is_warmup"])["is_warmup"] = False
    with_claims(case)


@cheat("fallbacks as an empty list", "G3-FALLBACKS")
def _(case: Case) -> None:
    assert case.report["fallbacks"]
    case.report["fallbacks"] = []


@cheat("a run that wrote nothing", "G1-DECLARED")
def _(case: Case) -> None:
    case.reports.clear()
    case.record["outputs"].clear()


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


@cheat("answers scored by the harness alone", "G4-ANSWERS", "needle_recall")
def _(case: Case) -> None:
    samples(case, 2)[0]["text"] = "I do not know"


@cheat("every answer in the first line", "G4-ANSWERS", "needle_recall", at_best="valid")
def _(case: Case) -> None:
    every = " ".join(sorted({sample["expected"] for arm in case.report["arms"] for sample in arm["samples"]}))
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample.update(text=f"{every} {sample['text']}")


@cheat("a timer that runs slow for the candidate", "G4-MARKS")
def _(case: Case) -> None:
    for sample in candidate(case)["samples"]:
        stages = sample["stages"]
        stages["decode_s"] *= 0.9
        stages["total_s"] = stages["prefill_s"] + stages["decode_s"]
    with_claims(case)


@cheat("a timer that reads nothing", "G5-PLAUSIBLE")
def _(case: Case) -> None:
    for sample in candidate(case)["samples"]:
        sample["stages"]["decode_s"] = 1e-9
    with_claims(case)


@cheat("a handicapped baseline", "G5-PLAUSIBLE")
def _(case: Case) -> Case:
    return code_throughput(Plan(token_s=0.1, step_s=0.02))


@cheat("the order of arms chosen", "G4-ORDER")
def _(case: Case) -> None:
    case.record["nonce"] = "ab" * 32


@cheat("slow prompts dropped", "G5-DESIGN", at_best="rejected")
def _(case: Case) -> None:
    worst = sorted(samples(case, 2), key=lambda s: -s["stages"]["decode_s"])[:6]
    names = {sample["prompt_id"] for sample in worst}
    for arm in case.report["arms"]:
        arm["samples"] = [sample for sample in arm["samples"] if sample["prompt_id"] not in names]
    case.report["fallbacks"] = []
    with_claims(case)


@cheat("a fast row counted twice", "G4-ROWS")
def _(case: Case) -> None:
    best = min(samples(case, 2), key=lambda s: s["stages"]["decode_s"])
    rows = candidate(case)["samples"]
    rows.insert(rows.index(best), dict(best))
    with_claims(case)


@cheat("another run's report", "G1-RUN")
def _(case: Case) -> None:
    case.report["run"]["id"] = "01jd7zk3v8q4w2m6x9c5b7n1tb"


@cheat("a report older than the run", "G1-FRESH")
def _(case: Case) -> None:
    case.record["outputs"][0]["after_start"] = False


@cheat("the best of ten", "G5-ATTEMPTS", at_best="valid")
def _(case: Case) -> None:
    earlier = [f"01jd7zk3v8q4w2m6x9c5b7n{number}t0" for number in range(1, 10)]
    case.record["attempt"].update(number=10, earlier=earlier)


@cheat("Metal declared, the processor used", "G3-ACCELERATOR", at_best="valid")
def _(case: Case) -> None:
    case.report["environment"]["device"] = "metal"


@cheat("a decoder that only sleeps", "G3-PROCESSOR", at_best="valid")
def _(case: Case) -> None:
    for command in case.record["commands"]:
        command["cpu_s"] = round(0.01 * (command["ended_s"] - command["started_s"]), 6)


@cheat("forwards that only sleep", "G3-PROCESSOR", "verify_cost", at_best="valid")
def _(case: Case) -> None:
    case.record["commands"][0]["cpu_s"] = 0.02


@cheat("the engine doing nothing, then a script", "G2-CODE", at_best="valid")
def _(case: Case) -> None:
    for command in (case.spec["commands"][-1], case.record["commands"][-1]):
        command["argv"] = ["/usr/bin/python3", "/home/me/report.py"]


@cheat("a script called engine", "G2-CODE", at_best="valid")
def _(case: Case) -> None:
    for command in (case.spec["commands"][-1], case.record["commands"][-1]):
        command["argv"] = [command["argv"][0], "-I", "/home/me/report.py", "-m", "engine.cli"]


@cheat("tests of the engine that write a report", "G2-CODE", at_best="valid")
def _(case: Case) -> None:
    for command in (case.spec["commands"][-1], case.record["commands"][-1]):
        command["argv"] = [*command["argv"][:4], "tests", "/home/me/test_report.py"]


@cheat("a headline of the harness's own", "G4-CLAIM")
def _(case: Case) -> None:
    case.report["claims"][0]["wording"] = "1.9x faster on every prompt"


@cheat("a claim nobody can recompute", "G4-CLAIM")
def _(case: Case) -> None:
    claim = {"id": "quality", "metric": "quality", "arms": [], "value": 0.99, "unit": "share", "wording": None}
    case.report["claims"].append(claim)


@cheat("a machine that throttled", "G8-STATE", at_best="valid")
def _(case: Case) -> Case:
    return code_throughput(Plan(shift=lambda _arm, launch, _index: 1.0 + 0.08 * launch))


@cheat("a crash after the report", "G2-ENDING")
def _(case: Case) -> None:
    case.record["commands"][-1]["exit_code"] = 1
    case.record["program_exit"] = 1


@cheat("a second report to choose from", "G1-EXTRA")
def _(case: Case) -> None:
    case.raw["other.json"] = case.files()["report.json"]
    case.record["outputs"].append({"path": "other.json", "bytes": 0, "sha256": "", "after_start": True})


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


@cheat("a forward in a picosecond", "G5-COSTS", base="verify_cost")
def _(case: Case) -> Case:
    for row in case.report["rows"]["verify"]:
        row["seconds"] = [1e-12 * (1.0 + 0.01 * (index % 3)) for index in range(len(row["seconds"]))]
    return state_claims(case)


@cheat("every repeat to the same nanosecond", "G5-COSTS", base="verify_cost")
def _(case: Case) -> Case:
    for row in case.report["rows"]["verify"]:
        row["seconds"] = [0.004] * len(row["seconds"])
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


@cheat("a graph in a picosecond", "G5-GRAPH", base="fused_graph_probe")
def _(case: Case) -> Case:
    for index, block in enumerate(case.report["rows"]["blocks"]):
        if block["mode"] == "one_graph":
            block["eval_s"] = 1e-12 * (1.0 + 0.01 * (index % 3))
    return state_claims(case)


@cheat("every block to the same nanosecond", "G5-GRAPH", base="fused_graph_probe")
def _(case: Case) -> Case:
    for block in case.report["rows"]["blocks"]:
        block["eval_s"] = 0.004 if block["mode"] == "one_graph" else 0.008
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


@cheat("a target said to be small", "G2-MODELS")
def _(case: Case) -> None:
    case.report["config"]["target"]["parameters"] = 1000


@cheat("the drafter called the target", "G2-MODELS")
def _(case: Case) -> None:
    drafter = case.report["config"]["drafter"]
    case.report["config"]["target"].update({name: drafter[name] for name in ("name", "digest", "parameters")})


@cheat("one prompt under many digests", "G4-PROMPTS")
def _(case: Case) -> None:
    prompts = case.report["prompts"]
    case.report["prompts"] = dict.fromkeys(prompts, next(iter(prompts.values())))


@cheat("prompts nobody can see", "G4-PROMPTS", at_best="valid")
def _(case: Case) -> None:
    del case.report["prompts"]


@cheat("one prompt with a counter in it", "G5-DESIGN", at_best="valid")
def _(case: Case) -> Case:
    return code_throughput(Plan(answer=lambda _rng, count: list(range(100, 100 + count))))


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
    held = {sample["prompt_id"]: sample["memory"]["kv_bytes"] for sample in native}
    for sample in quantised:
        sample["memory"]["kv_bytes"] = held[sample["prompt_id"]] + ROW_BYTES * 200
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
