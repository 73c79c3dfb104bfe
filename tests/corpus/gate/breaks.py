"""One way of breaking each rule: an honest run changed in one place, everything else sealed again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from bridge import strictjson
from engine.reports.tokens import token_digest
from tests.corpus.gate.builders import Case, probe, sha, suite
from tests.corpus.gate.generations import Plan, code_throughput, with_claims

Break = Callable[[], Case]
BREAKS: dict[str, Break] = {}
PASSES: dict[str, Break] = {}
SMALL = Plan(profile="smoke", launches=1, per_launch=6, warmups=1)
_HONEST: dict[str, Case] = {}


def honest(name: str) -> Case:
    """Return a fresh copy of an honest run; building the large one takes a moment, so it is built once."""
    if name not in _HONEST:
        from tests.corpus.gate.studies import BUILDERS

        made = {
            **BUILDERS,
            "probe": probe,
            "suite": suite,
            "claim": code_throughput,
            "smoke": lambda: code_throughput(SMALL),
        }
        _HONEST[name] = made[name]()
    return _HONEST[name].copy()


def breaks(code: str, base: str = "smoke") -> Callable[[Callable[[Case], Case | None]], Callable[[Case], Case | None]]:
    """Register a change to an honest run that must be found by this rule."""

    def register(change: Callable[[Case], Case | None]) -> Callable[[Case], Case | None]:
        def build() -> Case:
            case = honest(base)
            return (change(case) or case).seal()

        BREAKS[code] = build
        PASSES.setdefault(code, lambda: honest(base))
        return change

    return register


def samples(case: Case, arm: int = 0) -> list[dict[str, Any]]:
    return [sample for sample in case.report["arms"][arm]["samples"] if not sample["is_warmup"]]


def candidate(case: Case) -> dict[str, Any]:
    return case.report["arms"][-1]


def retoken(case: Case, sample: dict[str, Any], tokens: list[int]) -> None:
    """Give a sample other tokens of the same number, with every digest of them."""
    sample["tokens"], sample["token_digest"] = tokens, token_digest(tokens)
    sample["text"] = " ".join(f"w{token}" for token in tokens)
    for mark in case.record["sample_marks"] if case.record else ():
        if mark["sample"] == sample["id"] and mark["event"] == "end":
            mark["token_digest"] = sample["token_digest"]


@breaks("G0-JSON")
def _(case: Case) -> None:
    data = case.files()["report.json"].replace(b'"fallbacks"', b'"claims": [], "fallbacks"', 1)
    case.raw["report.json"] = data


@breaks("G0-KIND")
def _(case: Case) -> None:
    case.report["kind"] = "speed_of_light"


@breaks("G0-SCHEMA")
def _(case: Case) -> None:
    samples(case)[0]["counters"]["steps"] = 23.0


@breaks("G0-RECORD")
def _(case: Case) -> None:
    case.record = None


@breaks("G0-MEANING")
def _(case: Case) -> None:
    case.report["config"]["target"]["digest"] = "0" * 64


@breaks("G1-RUN")
def _(case: Case) -> None:
    case.report["run"]["id"] = "01jd7zk3v8q4w2m6x9c5b7n1tb"


@breaks("G1-DECLARED")
def _(case: Case) -> None:
    case.reports.clear()
    case.record["outputs"].clear()


@breaks("G1-EXTRA")
def _(case: Case) -> None:
    case.raw["second.json"] = b"{}"
    digest = hashlib.sha256(b"{}").hexdigest()
    case.record["outputs"].append({"path": "second.json", "bytes": 2, "sha256": digest, "after_start": True})


@breaks("G1-KIND")
def _(case: Case) -> None:
    case.spec["outputs"][0]["kind"] = "needle_recall"


@breaks("G1-FRESH")
def _(case: Case) -> None:
    case.record["outputs"][0]["after_start"] = False


@breaks("G1-SPEC")
def _(case: Case) -> None:
    case.record["policy_digest"] = sha("another policy")


@breaks("G1-PROFILE")
def _(case: Case) -> None:
    case.spec["gate_profile"] = "lenient"


@breaks("G2-ENDING")
def _(case: Case) -> None:
    case.record["program_exit"] = 1


@breaks("G2-COMMANDS")
def _(case: Case) -> None:
    case.record["commands"][0]["argv"].append("--fast")


@breaks("G2-CODE")
def _(case: Case) -> None:
    case.record["code"]["packages"]["mlx"] = "0.32.5"


@breaks("G2-TRUST")
def _(case: Case) -> None:
    case.spec["trust_class"] = case.record["code"]["trust_class"] = "untrusted"
    case.spec["code"] = case.record["code"]["origin"] = "request"
    case.record["imported"]["path"] = case.record["imported"]["work"] + "/engine/__init__.py"


@breaks("G2-SANDBOX")
def _(case: Case) -> None:
    case.spec["sandbox"]["mode"] = "required"
    case.record["sandbox"] = {
        "kind": "none",
        "reason": "no bwrap",
        "network": True,
        "namespaces": [],
        "filters": [],
        "uid": 1000,
    }


@breaks("G2-MODELS")
def _(case: Case) -> None:
    case.report["config"]["target"]["digest"] = sha("other weights")


@breaks("G2-HOST")
def _(case: Case) -> None:
    case.report["environment"]["machine"] = "arm64"


@breaks("G2-COMPLETE")
def _(case: Case) -> None:
    case.record["host"]["cpu"] = "unknown"


@breaks("G2-TIMES")
def _(case: Case) -> None:
    case.record["ended"] = case.record["started"]


@breaks("G3-PROBE", "probe")
def _(case: Case) -> None:
    case.report["rows"]["checks"][1]["ok"] = False


@breaks("G3-DRAFTER")
def _(case: Case) -> None:
    sample = candidate(case)["samples"][1]
    steps = sample["output_tokens"] - 1
    sample["accepted_per_step"] = sample["drafted_per_step"] = [0] * steps
    sample["counters"] = dict.fromkeys(sample["counters"], 0) | {
        "steps": steps,
        "target_forwards": steps,
        "host_syncs": steps + 1,
    }
    case.report["fallbacks"] = [row for row in case.report["fallbacks"] if row["sample"] != sample["id"]]


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


@breaks("G4-WINDOW")
def _(case: Case) -> None:
    case.report["started_at"] = "2026-11-18T09:00:00.000Z"


@breaks("G4-CLAIM")
def _(case: Case) -> None:
    case.report["claims"][0]["value"] *= 1.01


@breaks("G4-PROBE", "probe")
def _(case: Case) -> None:
    case.report["rows"]["matmul"][0]["gflop_per_s"] *= 1.01


@breaks("G4-TESTS", "suite")
def _(case: Case) -> None:
    case.report["rows"]["tests"][0].update(outcome="failed", reason="assert 1 == 2")


@breaks("G4-JUNIT", "suite")
def _(case: Case) -> None:
    case.raw["junit.xml"] = b"<testsuite/>"
    case.spec["outputs"].append({"path": "junit.xml", "kind": "junit", "required": True})
    case.record["outputs"].append({"path": "junit.xml", "bytes": 0, "sha256": "", "after_start": True})
    case.report["rows"]["junit_digest"] = sha("another file")


@breaks("G4-ARMS")
def _(case: Case) -> None:
    case.report["arms"][0]["role"] = "control"


@breaks("G4-ROWS")
def _(case: Case) -> None:
    samples(case)[0]["prompt_tokens"] += 1


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
    samples(case)[0]["tokens"][3] += 1


@breaks("G4-TEXT")
def _(case: Case) -> None:
    samples(case)[0]["text"] = "def better_text(): ..."


@breaks("G4-STAGES")
def _(case: Case) -> None:
    samples(case)[0]["stages"]["decode_s"] *= 0.99


@breaks("G4-STEPS")
def _(case: Case) -> None:
    candidate(case)["samples"][1]["accepted_per_step"][0] += 1


@breaks("G4-MARKS")
def _(case: Case) -> None:
    for sample in candidate(case)["samples"]:
        sample["stages"]["decode_s"] *= 0.5
        sample["stages"]["total_s"] = sample["stages"]["prefill_s"] + sample["stages"]["decode_s"]
    with_claims(case)


@breaks("G4-LOOPS")
def _(case: Case) -> None:
    samples(case)[0]["loop_onset"] = 5


@breaks("G4-MARGIN")
def _(case: Case) -> None:
    candidate(case)["samples"][1]["top2_margin_at_divergence"] = 0.25


@breaks("G4-MEMORY")
def _(case: Case) -> None:
    samples(case)[0]["memory"]["kv_bytes"] = 0


@breaks("G4-CONFIG")
def _(case: Case) -> None:
    case.report["config"]["dtype"] = "bfloat16"


@breaks("G5-DESIGN", "claim")
def _(case: Case) -> None:
    case.report["arms"] = [arm for arm in case.report["arms"] if arm["role"] != "control"]
    case.report["claims"] = []


@breaks("G5-WARMUP")
def _(case: Case) -> None:
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample["is_warmup"] = False


@breaks("G5-DURATION", "claim")
def _(case: Case) -> None:
    samples(case)[0]["stages"]["decode_s"] = 0.1


@breaks("G5-CONTROL", "claim")
def _(case: Case) -> None:
    for sample in samples(case, 1):
        sample["stages"]["decode_s"] *= 1.05


@breaks("G5-SPREAD", "claim")
def _(case: Case) -> None:
    samples(case, 1)[3]["stages"]["decode_s"] *= 4.0


@breaks("G5-TREND", "claim")
def _(case: Case) -> None:
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample["stages"]["decode_s"] *= 1.0 + 0.03 * sample["launch"]


@breaks("G5-ATTEMPTS", "claim")
def _(case: Case) -> None:
    case.record["attempt"].update(number=2, earlier=["01jd7zk3v8q4w2m6x9c5b7n1t0"])


@breaks("G5-PLAUSIBLE")
def _(case: Case) -> None:
    for sample in samples(case):
        sample["stages"]["decode_s"] *= 3.0


@breaks("G6-IDENTITY", "claim")
def _(case: Case) -> None:
    sample = samples(case, 2)[0]
    retoken(case, sample, [*sample["tokens"][:-1], (sample["tokens"][-1] + 7) % 2000 + 6])
    sample["top2_margin_at_divergence"] = 1e-5


@breaks("G6-LOOPS")
def _(case: Case) -> Case:
    return code_throughput(Plan(**{**SMALL.__dict__, "tokens": 64, "answer": lambda rng, n: [9, 8, 7, 6] * (n // 4)}))


@breaks("G8-STATE", "claim")
def _(case: Case) -> None:
    case.record["telemetry"]["power"] = ["mains", "battery"]


@breaks("G8-TELEMETRY")
def _(case: Case) -> None:
    case.record["telemetry"]["samples"][2]["cpu_share"] = 7.0


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


def lock(packages: dict[str, str]) -> str:
    return hashlib.sha256(strictjson.encode(packages)).hexdigest()


@breaks("G4-ANSWERS")
def _(case: Case) -> None:
    samples(case)[0]["correct"] = True


def _study_breaks() -> None:
    """Register the breaks of the kinds that are built by `studies`."""
    from tests.corpus.gate.studies import BUILDERS

    def study(code: str, kind: str, change: Callable[[Any], None]) -> None:
        def fresh() -> Case:
            if kind not in _HONEST:
                _HONEST[kind] = BUILDERS[kind]()
            return _HONEST[kind].copy()

        def build() -> Case:
            case = fresh()
            change(case.report)
            return case.seal()

        BREAKS[code], PASSES[code] = build, fresh

    def set_margin(report: Any) -> None:
        report["rows"]["blocks"][0]["torch_tokens"][2] += 1
        report["rows"]["blocks"][0]["top2_margin_at_divergence"] = 1e-6

    def slow(report: Any) -> None:
        for sample in report["arms"][2]["samples"]:
            sample["stages"]["decode_s"] *= 1.3

    study("G4-PARITY", "drafter_parity", lambda report: report["rows"]["blocks"][0]["mlx_tokens"].pop())
    study("G6-PARITY", "drafter_parity", set_margin)
    study("G4-COSTS", "verify_cost", lambda report: report["rows"]["verify"][0]["seconds"].pop())
    study("G5-COSTS", "verify_cost", lambda report: report["rows"]["verify"][0]["seconds"].__setitem__(0, 0.05))
    study("G4-GRAPH", "fused_graph_probe", lambda report: report["rows"]["blocks"].pop(5))
    study("G5-GRAPH", "fused_graph_probe", lambda report: report["rows"].update(blocks=report["rows"]["blocks"][:10]))
    study("G4-POSITIONS", "acceptance", lambda report: report["rows"]["by_position"][1].update(accepted=9))
    study("G4-ERRORS", "kv_quantisation", lambda report: report["rows"]["errors"].pop())
    study(
        "G4-TRAINING",
        "f_theta_training",
        lambda report: report["rows"]["held_out"][0].update(sequence_digest=report["rows"]["training_digests"][0]),
    )
    study("G3-CANARY", "f_theta_training", lambda report: report["rows"]["canaries"].update(noise_logit_change=0.0))
    study("G7-DESIGN", "bounded_kv", lambda report: report["rows"]["points"][0].update(process=4115))
    study("G7-BUFFERS", "bounded_kv", lambda report: report["rows"]["points"][0].update(kv_bytes=4_000_000))
    study("G7-NATIVE", "bounded_kv", lambda report: report["rows"]["points"][0].update(kv_bytes=64))
    study("G4-RPCS", "distributed_e2e", lambda report: report["rows"]["rpcs"].clear())
    study("G5-CONFIRM", "commit_comparison", slow)
    study("G2-PEER", "request_code", lambda report: report["rows"]["launches"][1]["prompts"][3].update(text="known"))
    study(
        "G4-TREES",
        "commit_comparison",
        lambda report: report["rows"]["trees"]["head"].update(imported="base/engine/__init__.py"),
    )


_study_breaks()
