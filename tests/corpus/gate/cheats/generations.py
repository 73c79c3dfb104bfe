"""Cheats in runs that decode faster; the seed's own failures come first."""

from __future__ import annotations

from typing import Any

from tests.corpus.gate.breaks import candidate, retoken, samples
from tests.corpus.gate.builders import Case
from tests.corpus.gate.cheats.registry import cheat
from tests.corpus.gate.generations import Plan, code_throughput, with_claims
from tests.corpus.gate.launches import in_order
from tests.corpus.gate.turned import in_turns


def plain_steps(sample: dict[str, Any]) -> None:
    steps = sample["output_tokens"] - 1
    sample["accepted_per_step"], sample["drafted_per_step"] = [0] * steps, [0] * steps
    zero = dict.fromkeys(sample["counters"], 0)
    sample["counters"] = {**zero, "steps": steps, "target_forwards": steps, "host_syncs": steps + 1}


@cheat("fused with zero blocks run", "G3-SELF")
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

        idle = sum(1 for length in expected_drafts(sample, case.report["config"]) or [] if length)
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


@cheat("outputs that differ in three of eight", "G6-IDENTITY", at_best="valid")
def _(case: Case) -> None:
    for index, sample in enumerate(samples(case, 2)):
        if index % 8 < 3:
            retoken(case, sample, [*sample["tokens"][:-2], 77, sample["tokens"][-1]])
            sample["top2_margin_at_divergence"] = 0.5


@cheat("the warm-up prompt counted", "G4-ROWS")
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


@cheat("a handicapped baseline", "G4-TURNS", at_best="valid")
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


@cheat("a prefill that is put off into turns of decoding", "G5-PREFILL", base="turned", at_best="evidence")
def _(case: Case) -> None:
    for launch in case.record["launches"]:
        for sample in {turn["sample"] for turn in launch["turns"]}:
            first, second, *_ = [t for t in launch["turns"] if (t["arm"], t["sample"]) == ("speculative", sample)]
            moved = 0.8 * (first["done_s"] - first["go_s"])
            first["done_s"] -= moved
            second["done_s"] += moved
    in_order(case.record["launches"])


@cheat("five launches called enough", "G5-LAUNCHES", base="turned", at_best="valid")
def _(_case: Case) -> Case:
    return in_turns(launches=5)


@cheat("seconds of a machine that others used", "G8-STATE", base="native", at_best="valid")
def _(case: Case) -> None:
    for sample in case.record["telemetry"]["samples"]:
        sample["other_cpu_share"] = 0.5
