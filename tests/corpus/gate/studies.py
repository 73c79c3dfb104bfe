"""Honest reports of the other kinds."""

from __future__ import annotations

import json
import random
import string
from typing import Any

from engine.measurement.drawn_prompts import draw
from engine.reports.tokens import packed_tokens, token_digest
from tests.corpus.gate.bounded import bounded_recall
from tests.corpus.gate.builders import Case, envelope, sha, state_claims
from tests.corpus.gate.generations import (
    COMMITS,
    LAYERS,
    MODELS,
    ROW_BYTES,
    Plan,
    code_throughput,
    peer_nonce,
    prompt_ids,
)
from tests.corpus.gate.runs import around, recomputation

TARGET = {
    "name": "kakeya-tiny-gemma4",
    "digest": sha("target weights"),
    "format": "gemma4_text",
    "parameters": 2_680_000,
    "vocab_size": 2048,
    "dtype": "float32",
}


def needle_recall() -> Case:
    return state_claims(code_throughput(Plan(needles=True, stop="natural"), "needle_recall"))


def acceptance(skip: float = Plan.skip) -> Case:
    """Return how many drafts were accepted; ``skip`` is the share of steps to which no draft came."""
    plan = Plan(arms=("autoregressive", "speculative"), launches=1, per_launch=60, warmups=2, skip=skip)
    case = code_throughput(plan, "acceptance")
    measured = [s for s in case.report["arms"][1]["samples"] if not s["is_warmup"]]
    rows = [{"position": place + 1, "reached": 0, "accepted": 0} for place in range(3)]
    for sample in measured:
        for accepted, drafted in zip(sample["accepted_per_step"], sample["drafted_per_step"], strict=True):
            for place in range(min(accepted + 1, drafted)):
                rows[place]["reached"] += 1
                rows[place]["accepted"] += place < accepted
    case.report["rows"] = {"by_position": rows}
    return state_claims(case)


def distributed_bench(skip: float = 0.0) -> Case:
    """Return speeds behind two links; ``skip`` is the share of steps to which no draft came, 1 for no answer at all."""
    arms = ("local", "local_again", "rtt-0ms", "rtt-50ms")
    case = code_throughput(Plan(arms=arms, step_s=0.07, skip=skip), "distributed_bench")
    rows = [_rpc(case, "rtt-0ms", 7), _rpc(case, "rtt-50ms", 8)]
    if skip == 1.0:
        for row in rows:
            row.update(seconds=[], drafting_s=[], bytes_received=0)
    case.report["rows"] = {"rpcs": rows}
    return state_claims(case)


def distributed_e2e() -> Case:
    plan = Plan(arms=("local", "in-process", "loopback"), launches=1, per_launch=6, warmups=1)
    case = code_throughput(plan, "distributed_e2e")
    drafts = [
        {"arm": arm["name"], "sample": sample["id"], "digest": sha(sample["prompt_id"])}
        for arm in case.report["arms"][1:]
        for sample in arm["samples"]
    ]
    case.report["rows"] = {"rpcs": [_rpc(case, "loopback", 9)], "drafts": drafts}
    case.raw["recompute.json"] = json.dumps(recomputation(case.reports)).encode()
    case.record["sample_marks"] = []
    return state_claims(case)


def commit_comparison() -> Case:
    case = code_throughput(Plan(arms=COMMITS, step_s=0.07), "commit_comparison")
    commits = {"base": "a1" * 20, "head": "b2" * 20}
    case.report["config"].update(base_commit=commits["base"], head_commit=commits["head"], slower_margin=0.05)
    trees = {
        side: {"commit": commit, "imported": f"{side}/engine/__init__.py", "sources_sha256": sha(commit)}
        for side, commit in commits.items()
    }
    case.report["rows"] = {"passes": [[0, 1, 2, 3, 4]], "trees": trees}
    if case.spec is not None and case.record is not None:
        tree = "c3" * 20
        case.spec.update(base=commits["base"], code="request", trust_class="trusted", tree=tree)
        case.record["code"].update(identity=commits["head"], origin="request", trust_class="trusted", tree=tree)
    return state_claims(case)


def request_code() -> Case:
    """Return a run in which host code asked code nobody trusts, and measured it from outside."""
    plan = Plan(arms=("autoregressive", "autoregressive_again", "peer"))
    case = code_throughput(plan, "request_code")
    words = [f"{first}{second}" for first in ("ab", "cd", "ef", "gh") for second in string.ascii_lowercase]
    nonces = [peer_nonce(launch) for launch in range(plan.launches)]
    _numbered(case, plan)
    for arm in case.report["arms"]:
        for sample in arm["samples"] if arm["name"] == "peer" else ():
            sample["counters"] = dict.fromkeys(sample["counters"], 0)
            sample["memory"] = {**dict.fromkeys(sample["memory"]), "kv_bytes": 0}
    case.report["config"].update(prompt_set="nonce-structured", prompt_rule="drawn from the run's nonce")
    numbers = range(plan.per_launch + plan.warmups)
    case.report["rows"] = {
        "words": words,
        "launches": [
            {
                "launch": launch,
                "nonce": nonce,
                "prompts": [
                    {"id": f"nonce-{launch}-{number:03d}", "text": draw(nonce, number, tuple(words))}
                    for number in numbers
                ],
            }
            for launch, nonce in enumerate(nonces)
        ],
    }
    if case.spec is not None and case.record is not None:
        _beside(case, nonces)
    case = state_claims(case)
    for claim in case.report["claims"]:
        claim["wording"] = None  # the gate's, which knows the sitting
    return case.seal()


def _numbered(case: Case, plan: Plan) -> None:
    """Name prompts by launch and number, warm-ups too."""
    renamed: dict[str, str] = {}
    case.report["prompts"] = {}
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            place = int(sample["prompt_id"].rsplit("-", 1)[1])
            warm = place - plan.launches * plan.per_launch
            number = plan.per_launch + warm if sample["is_warmup"] else place % plan.per_launch
            old, sample["prompt_id"] = sample["id"], f"nonce-{sample['launch']}-{number:03d}"
            ids = prompt_ids(sample["prompt_id"], sample["prompt_tokens"])
            sample["prompt_digest"] = token_digest(ids)
            case.report["prompts"][sample["prompt_digest"]] = packed_tokens(ids)
            sample["id"] = f"{sample['launch']}/{sample['order_index']}/{arm['name']}/{sample['prompt_id']}"
            renamed[old] = sample["id"]
    for mark in case.record["sample_marks"] if case.record else ():
        mark["sample"] = renamed[mark["sample"]]


def _beside(case: Case, nonces: list[str]) -> None:
    """Put the peers of a run into its job spec and its record."""
    spec, record, tree = case.spec, case.record, "c3" * 20
    assert spec is not None
    assert record is not None
    spec.update(code="request", trust_class="untrusted", tree=tree)
    spec["sandbox"].update(mode="required", uid=1000, peer_uid=1001)
    record["code"].update(origin="request", trust_class="untrusted", tree=tree)
    marks: dict[str, list[float]] = {}
    for mark in record["sample_marks"]:
        marks.setdefault(mark["sample"], []).append(mark["t_s"])
    record["peers"] = []
    for launch, nonce in enumerate(nonces):
        command = record["commands"][launch]
        argv = ["/opt/kakeya/bin/python", "-s", "-m", "engine.cli", "eval", "answer", "--depth", "3"]
        spec["commands"][launch]["peer"] = list(argv)
        ours = [times for name, times in marks.items() if name.startswith(f"{launch}/") and "/peer/" not in name]
        record["peers"].append(
            {
                "command": command["name"],
                "argv": argv,
                "nonce": nonce,
                "started_s": command["started_s"],
                "ended_s": command["ended_s"],
                "exit_code": 0,
                "signal": None,
                "sandbox": {**record["sandbox"], "uid": 1001},
                "held": [[round(times[0] - 0.001, 9), round(times[-1] + 0.001, 9)] for times in ours],
                "survivors": 0,
            }
        )


def kv_quantisation() -> Case:
    plan = Plan(arms=("native", "affine8"), needles=True, launches=1, per_launch=100, warmups=1, stop="natural")
    case = code_throughput(plan, "kv_quantisation")
    rng = random.Random(3)
    case.report["rows"] = {
        "errors": [
            {
                "arm": "affine8",
                "layer": layer,
                "side": side,
                "values": 64 * 640,
                "bits": 8.5,
                "error_sq": rng.uniform(1e-3, 3e-3),
                "reference_sq": rng.uniform(30.0, 50.0),
            }
            for layer in range(LAYERS)
            for side in ("keys", "values")
        ]
    }
    case.record["sample_marks"] = []
    return state_claims(case)


def _rpc(case: Case, name: str, seed: int) -> dict[str, Any]:
    """Return calls as many as an arm drafted, some for a draft that came too late, over the link it is named after."""
    rng = random.Random(seed)
    link_s = int(name.removeprefix("rtt-").removesuffix("ms")) / 1e3 if name.startswith("rtt-") else 0.0
    arm = next(arm for arm in case.report["arms"] if arm["name"] == name)
    drafts = sum(1 for sample in arm["samples"] for count in sample["drafted_per_step"] if count) + 5
    drafting = [rng.uniform(0.001, 0.003) for _ in range(drafts)]
    return {
        "arm": name,
        "method": "Draft",
        "seconds": [computed + link_s + rng.uniform(0.0002, 0.0004) for computed in drafting],
        "drafting_s": drafting,
        "round_trips_s": [link_s + rng.uniform(0.0002, 0.0004) for _ in range(40)],
        "bytes_sent": 5000,
        "bytes_received": 9000,
    }


def drafter_parity() -> Case:
    rng = random.Random(11)
    blocks: list[dict[str, Any]] = []
    generations: list[dict[str, Any]] = []
    for index in range(8):
        prompt, length = f"structured-short-{index:03d}", 40 + index
        accepted = [rng.randrange(0, 4) for _ in range(6)]
        tokens = [rng.randrange(6, 2048) for _ in range(1 + len(accepted) + sum(accepted))]
        places = [length]
        for taken in accepted:
            places.append(places[-1] + taken + 1)
        emitted = 1
        for place, taken in zip(places[:-1], accepted, strict=True):
            bonus = tokens[emitted - 1]
            draft = tokens[emitted : emitted + taken] + [rng.randrange(6, 2048) for _ in range(7 - taken)]
            emitted += taken + 1
            blocks.append(
                {
                    "prompt_id": prompt,
                    "position": place,
                    "bonus": bonus,
                    "mlx_tokens": draft,
                    "torch_tokens": list(draft),
                    "top2_margin_at_divergence": None,
                }
            )
        generations.append(
            {
                "prompt_id": prompt,
                "prompt_digest": token_digest(prompt_ids(prompt, length)),
                "mlx_tokens": tokens,
                "torch_tokens": list(tokens),
                "mlx_accepted_per_step": accepted,
                "torch_accepted_per_step": list(accepted),
            }
        )
    case = _study("drafter_parity", {"blocks": blocks, "generations": generations}, wall_s=50.0)
    tokens = [prompt_ids(f"structured-short-{index:03d}", 40 + index) for index in range(8)]
    case.report["prompts"] = {token_digest(ids): packed_tokens(ids) for ids in tokens}
    return case.seal()


def verify_cost() -> Case:
    rng = random.Random(13)
    cost = {1: 0.0030, 2: 0.0034, 4: 0.0038, 8: 0.0047}

    def times(base: float) -> list[float]:
        return [base * rng.lognormvariate(0.0, 0.02) for _ in range(30)]

    verify = [
        {
            "context_tokens": context,
            "rows": rows,
            "seconds": times(cost[rows] * (1 + context / 4000)),
            "token_digest": token_digest([context + row for row in range(rows)]),
        }
        for context in (128, 512)
        for rows in cost
    ]
    draft = [
        {
            "context_tokens": context,
            "drafted_tokens": rows - 1,
            "seconds": times(0.0012),
            "token_digest": token_digest([context - row for row in range(1, rows)]),
        }
        for context in (128, 512)
        for rows in (2, 4, 8)
    ]
    return _study("verify_cost", {"verify": verify, "draft": draft}, wall_s=40.0)


def fused_graph() -> Case:
    rng = random.Random(17)
    blocks: list[dict[str, Any]] = []
    position = 60
    for index in range(48):
        accepted = rng.randrange(0, 4)
        mode = "one_graph" if index % 2 else "two_evaluations"
        blocks.append(
            {
                "index": index,
                "mode": mode,
                "position": position,
                "drafted": 3,
                "accepted": accepted,
                "eval_s": (0.006 if index % 2 else 0.005) * rng.lognormvariate(0.0, 0.03),
                "is_warmup": index < 2,
            }
        )
        position += 1 + accepted
    config = {"depth": 3, "blocks": 48, "limit_s": 120.0}
    return _study("fused_graph_probe", {"blocks": blocks, "asked_blocks": 48, "limit_s": 120.0}, wall_s=40.0, **config)


def f_theta_training() -> Case:
    rng = random.Random(19)
    curve = [{"step": step, "loss": 2.0 * 0.9**step + 0.1, "learning_rate": 1e-3} for step in range(0, 60, 5)]
    held_out = []
    for index in range(12):
        before = rng.uniform(1.8, 2.2)
        after = before * rng.uniform(0.2, 0.25)
        digest = sha(f"held {index}")
        held_out.append({"sequence_digest": digest, "tokens": 512, "loss_before": before, "loss_after": after})
    rows = {
        "curve": curve,
        "held_out": held_out,
        "training_digests": [sha(f"train {index}") for index in range(40)],
        "canaries": {"noise_logit_change": 3.68, "identity_logit_change": 2e-5},
        "parameters": 94_371,
        "collect_s": 12.0,
        "train_s": 25.0,
    }
    return _study("f_theta_training", rows, wall_s=40.0, loss="attn_distill_hybrid", rank=64)


def bounded_kv() -> Case:
    points: list[dict[str, Any]] = []
    for number, (arm, role) in enumerate((("native", "baseline"), ("sink4+window64", "candidate"))):
        for context in (256, 512, 1024, 2048):
            for repeat in range(2):
                kv = ROW_BYTES * (context + 32) if arm == "native" else ROW_BYTES * 68
                extra = (0, 0) if arm == "native" else (68 * 1024, 68 * 512)
                idle = 11_000_000
                points.append(
                    {
                        "arm": arm,
                        "role": role,
                        "process": 4000 + 100 * number + len(points),
                        "repeat": repeat,
                        "context_tokens": context,
                        "decode_steps": 32,
                        "kv_bytes": kv,
                        "kv_bytes_peak": kv + 65_536,
                        "host_bytes": 0,
                        "drafter_bytes": extra[0],
                        "latent_bytes": extra[1],
                        "allocator_idle_bytes": idle,
                        "allocator_active_bytes": idle + kv + sum(extra) + 2048,
                        "token_digest": token_digest([context, 7, 8]),
                    }
                )
    return _study("bounded_kv", {"points": points}, wall_s=60.0)


def _study(kind: str, rows: dict[str, Any], *, wall_s: float, **config: Any) -> Case:
    value = envelope(kind, wall_s=wall_s, config={"target": TARGET, **config}, rows=rows)
    return state_claims(around({"report.json": value}, models=MODELS))


BUILDERS = {
    "needle_recall": needle_recall,
    "acceptance": acceptance,
    "distributed_bench": distributed_bench,
    "distributed_e2e": distributed_e2e,
    "commit_comparison": commit_comparison,
    "request_code": request_code,
    "kv_quantisation": kv_quantisation,
    "drafter_parity": drafter_parity,
    "verify_cost": verify_cost,
    "fused_graph_probe": fused_graph,
    "f_theta_training": f_theta_training,
    "bounded_kv": bounded_kv,
    "bounded_recall": lambda: bounded_recall(TARGET),
}
