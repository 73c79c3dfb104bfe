"""Honest reports of generations: interleaved arms with marks, made by a seeded simulation of a small machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.gate.facts.samples import expected_drafts
from engine.measurement.schedule import balanced_orders, drawn
from engine.reports.tokens import loop_onset, packed_tokens, token_digest
from tests.corpus.gate.builders import NONCE, Case, built_once, envelope, moment, sha
from tests.corpus.gate.runs import around

ARMS = {
    "smoke": ("autoregressive", "speculative"),
    "claim": ("autoregressive", "autoregressive_again", "speculative"),
}
ROLES = {
    "autoregressive": "baseline",
    "autoregressive_again": "control",
    "speculative": "candidate",
    "local": "baseline",
    "local_again": "control",
    "rtt-0ms": "candidate",
    "rtt-50ms": "candidate",
    "in-process": "candidate",
    "loopback": "candidate",
    "base": "baseline",
    "base_again": "control",
    "head": "candidate",
    "peer": "candidate",
    "native": "baseline",
    "affine8": "candidate",
}
COMMITS = ("base", "base_again", "head")
RUNGS = ("in-process", "loopback")
REMOTE = (*RUNGS, "rtt-0ms", "rtt-50ms")
NATIVE = "mlx_lm.generate:generate_step"
CODE = {
    "speculative": "engine.decoding.speculative:speculative",
    **dict.fromkeys(REMOTE, "engine.decoding.speculative:speculative"),
    "peer": "engine.isolation.peers:PipedPeer",
    "affine8": "engine.backends.mlx.caches:quantised",
    **dict.fromkeys(COMMITS, "engine.decoding.speculative:speculative"),
}
DRAFTS = {"speculative", *REMOTE, *COMMITS}
VOCABULARY, STOP_ID, BLOCK = 2048, 1, 4
LAYERS = 6
ROW_BYTES = LAYERS * 128 * 4
"""What a position takes in the native cache of the target below, in float32."""
MODELS = [
    {
        "name": name,
        "path": f"/opt/kakeya/assets/{name}",
        "files": 8,
        "bytes": 10_700_000,
        "sha256": sha(name),
        "weights_sha256": sha(weights),
        "shape": {
            "parameters": parameters,
            "text_only": True,
            "vocabulary": 2048,
            "dtype": "float32",
            "caches": caches,
        },
    }
    for name, weights, parameters, caches in (
        ("kakeya-tiny-gemma4", "target weights", 2_680_006, [{"keys": 64, "values": 64, "window": None}] * LAYERS),
        ("kakeya-tiny-gemma4-dflash", "drafter weights", 850_000, None),
    )
]


@dataclass(frozen=True)
class Plan:
    """How a simulated run goes.

    Attributes:
        token_s: seconds of a plain step.
        step_s: seconds of a draft-verify step.
        noise: standard deviation of the log of a sample's times.
        accept: probability that the next drafted token is accepted.
        skip: probability that the drafter has nothing to offer.
    """

    profile: str = "claim"
    launches: int = 5
    per_launch: int = 12
    warmups: int = 2
    tokens: int = 24
    token_s: float = 0.0250
    step_s: float = 0.0285
    noise: float = 0.02
    accept: float = 0.55
    skip: float = 0.04
    seed: int = 7
    stop: str = "natural"
    dtype: str = "float32"
    answer: Callable[[random.Random, int], list[int]] | None = None
    say: Callable[[list[int]], str] | None = None
    arms: tuple[str, ...] | None = None
    shift: Callable[[str, int, int], float] | None = None
    needles: bool = False
    recalls: Callable[[str, int], bool] = lambda arm, index: True


def plain_answer(rng: random.Random, count: int) -> list[int]:
    """Return tokens that fill the budget, or now and then end before it."""
    if rng.random() < 0.2:
        return [*(rng.randrange(6, VOCABULARY) for _ in range(count - 3)), STOP_ID]
    return [rng.randrange(6, VOCABULARY) for _ in range(count)]


def prompt_ids(prompt: str, length: int) -> list[int]:
    """Return the tokens of a prompt: another name, other tokens."""
    drawn = random.Random(prompt)
    return [drawn.randrange(6, VOCABULARY) for _ in range(length)]


@built_once
def code_throughput(plan: Plan = Plan(), kind: str = "code_throughput") -> Case:
    """Return an honest run of a comparison."""
    rng = random.Random(plan.seed)
    names = plan.arms or ARMS[plan.profile]
    arms: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    marks: list[dict[str, Any]] = []
    spans: list[tuple[float, float]] = []
    fallbacks: list[dict[str, Any]] = []
    now, busy = 0.1, 0.0
    prompts = [f"structured-long-{index:03d}" for index in range(plan.launches * plan.per_launch + plan.warmups)]
    answers = {prompt: (plan.answer or plain_answer)(rng, plan.tokens) for prompt in prompts}
    # A prompt is the same in every run. The draw keeps the times below what they were when lengths differed by seed.
    lengths = {prompt: (rng.randrange(20, 60), random.Random(prompt).randrange(20, 60))[1] for prompt in prompts}
    for launch in range(plan.launches):
        began = now
        now += 0.4
        opened = now
        mine = prompts[launch * plan.per_launch : (launch + 1) * plan.per_launch]
        warm = prompts[plan.launches * plan.per_launch :]
        for index, (prompt, arm, is_warmup) in enumerate(_sequence(plan, names, (mine, warm), launch)):
            sample, now = _sample(plan, rng, arm, prompt, (launch, index, is_warmup), answers, lengths, now, marks)
            arms[arm].append(sample)
            fallbacks += _fallbacks(sample, arm, _config(plan, names))
        busy += now - opened
        spans.append((round(began, 6), round(now + 0.05, 6)))
        now += 0.2
    value = envelope(
        kind,
        wall_s=spans[-1][1] - spans[0][0] - 0.5,
        profile=plan.profile,
        started_s=1.4,
        config=_config(plan, names),
        arms=[{"name": n, "role": ROLES[n], "code_path": CODE.get(n, NATIVE), "samples": arms[n]} for n in names],
        fallbacks=fallbacks,
    )
    met = {sample["prompt_id"]: sample for samples in arms.values() for sample in samples}
    tokens = [prompt_ids(prompt, lengths[prompt]) for prompt in met]
    value["prompts"] = {token_digest(ids): packed_tokens(ids) for ids in tokens}
    value["wall_s"] = round(busy + 0.01 * plan.launches, 6)
    if plan.launches == 1:
        value["ended_at"] = moment(1.4 + value["wall_s"])
    spans.append((round(now, 6), round(now + 0.3, 6)))
    case = around(
        {"report.json": value},
        profile=plan.profile,
        gate_profile="default",
        primary=None,
        commands=spans,
        marks=marks,
        models=MODELS,
    )
    return with_claims(case)


def with_claims(case: Case) -> Case:
    """Let the report state its ratio, as the harness does, and seal it."""
    arms = case.report["arms"]
    candidate = next((arm["name"] for arm in arms if arm["role"] == "candidate"), None)
    if candidate is not None and case.report["kind"] in {"code_throughput", "needle_recall", "distributed_bench"}:
        sums = {a["name"]: sum(s["stages"]["decode_s"] for s in a["samples"] if not s["is_warmup"]) for a in arms}
        theirs = [arm["name"] for arm in arms if arm["role"] != "candidate"]
        ratio = sum(sums[name] for name in theirs) / len(theirs) / sums[candidate]
        case.report["claims"] = [
            {
                "id": "decode_speedup",
                "metric": "decode_speedup",
                "arms": [candidate, *theirs],
                "value": ratio,
                "unit": "ratio",
                "wording": None,
            }
        ]
    return case.seal()


def peer_nonce(launch: int) -> str:
    return sha(f"nonce {launch}")


def _sequence(
    plan: Plan, names: tuple[str, ...], prompts: tuple[list[str], list[str]], launch: int
) -> list[tuple[str, str, bool]]:
    mine, warm = prompts
    listed = [(prompt, arm, True) for prompt in warm for arm in names]
    from_peer = "peer" in names  # its prompts are named by launch and number, its order follows from the peer's nonce
    named = {f"nonce-{launch}-{place:03d}" if from_peer else prompt: prompt for place, prompt in enumerate(mine)}
    nonce = peer_nonce(launch) if from_peer else NONCE
    order = drawn(named, nonce, launch)
    draws = balanced_orders(names, len(order), nonce, launch)
    return listed + [(prompt, arm, False) for prompt, draw in zip(order, draws, strict=True) for arm in draw]


def _sample(
    plan: Plan,
    rng: random.Random,
    arm: str,
    prompt: str,
    place: tuple[int, int, bool],
    answers: dict[str, list[int]],
    lengths: dict[str, int],
    now: float,
    marks: list[dict[str, Any]],
) -> tuple[dict[str, Any], float]:
    launch, index, is_warmup = place
    tokens = list(answers[prompt])
    drafts = arm in DRAFTS
    # Two commits of one engine accept the same drafts, and so do the rungs of one drafter.
    drawn = random.Random(f"{plan.seed} {prompt}") if arm in (*COMMITS, *RUNGS) else rng
    accepted, drafted = _steps(plan, drawn, len(tokens)) if drafts else (None, None)
    steps = len(accepted) if accepted is not None else len(tokens) - 1
    factor = rng.lognormvariate(0.0, plan.noise) * (plan.shift(arm, launch, index) if plan.shift else 1.0)
    decode = steps * (plan.step_s if drafts else plan.token_s) * factor
    prefill = 0.012 * (1.25 if drafts else 1.0) * rng.lognormvariate(0.0, plan.noise)
    name = f"{launch}/{index}/{arm}/{prompt}"
    digest = token_digest(tokens)
    late = [abs(rng.gauss(0.0, 0.0002)) for _ in range(3)]
    times = (now + late[0], now + prefill + late[1], now + prefill + decode + late[2])
    for event, at in zip(("start", "first_token", "end"), times, strict=True):
        end_digest = digest if event == "end" else None
        marks.append({"event": event, "sample": name, "token_digest": end_digest, "t_s": round(at, 9)})
    rows = lengths[prompt] + len(tokens) - 1
    sample = {
        "id": name,
        "prompt_id": prompt,
        "prompt_digest": token_digest(prompt_ids(prompt, lengths[prompt])),
        "kind": "structured",
        "launch": launch,
        "order_index": index,
        "is_warmup": is_warmup,
        "prompt_tokens": lengths[prompt],
        "output_tokens": len(tokens),
        "tokens": tokens,
        "token_digest": digest,
        "text": (plan.say or _say)(tokens),
        "stop_reason": "eos" if tokens[-1] == STOP_ID else "budget",
        "stages": {
            "prefill_s": prefill,
            "decode_s": decode,
            "draft_s": None,
            "verify_s": None,
            "other_s": None,
            "total_s": prefill + decode,
        },
        "counters": {
            "target_forwards": steps,
            "drafter_forwards": sum(1 for d in drafted if d) if drafted else 0,
            "drafted_tokens": sum(drafted) if drafted else 0,
            "accepted_tokens": sum(accepted) if accepted else 0,
            "steps": steps,
            "host_syncs": steps + 1,
            "guard_rejections": 0,
        },
        "accepted_per_step": accepted,
        "drafted_per_step": drafted,
        "memory": {
            "kv_bytes": ROW_BYTES * (rows + (BLOCK if drafts else 0)),
            "kv_bytes_peak": ROW_BYTES * (rows + 64),
            "drafter_bytes": 1024 * rows if drafts else None,
            "allocator_active_bytes": 14_000_000 + (ROW_BYTES + 1024) * rows,
        },
        "loop_onset": loop_onset(tokens),
        "top2_margin_at_divergence": None,
        "expected": None,
        "correct": None,
    }
    if plan.needles:
        index = int(prompt.rsplit("-", 1)[1])
        right = plan.recalls(arm, index)
        sample.update(kind="needle", expected=str(100_000 + index), correct=right)
        sample["text"] = f"{100_000 + index if right else 7}.\nAnd more."
        if not right:  # another answer is made of other tokens
            _other(sample, marks)
    return sample, max(now + prefill + decode, times[2]) + 0.004


def _other(sample: dict[str, Any], marks: list[dict[str, Any]]) -> None:
    sample["tokens"] = [*sample["tokens"][:-2], 5, sample["tokens"][-1]]
    sample["token_digest"] = marks[-1]["token_digest"] = token_digest(sample["tokens"])
    sample["top2_margin_at_divergence"] = 0.01


def _steps(plan: Plan, rng: random.Random, count: int) -> tuple[list[int], list[int]]:
    accepted: list[int] = []
    drafted: list[int] = []
    committed = 1
    while committed < count:
        draft = max(0, min(BLOCK - 1, plan.tokens - committed - 1))
        if draft and rng.random() < plan.skip:
            draft = 0
        taken = 0
        while taken < min(draft, count - committed - 1) and rng.random() < plan.accept:
            taken += 1
        accepted.append(taken)
        drafted.append(draft)
        committed += taken + 1
    return accepted, drafted


def _fallbacks(sample: dict[str, Any], arm: str, config: dict[str, Any]) -> list[dict[str, Any]]:
    lengths = expected_drafts(sample, config) or []
    idle = sum(
        1 for count, length in zip(sample["drafted_per_step"] or [], lengths, strict=True) if count == 0 < length
    )
    if not idle:
        return []
    reason = "no context of the drafter is left"
    return [{"arm": arm, "component": "drafter", "sample": sample["id"], "reason": reason, "count": idle}]


def _say(tokens: list[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


def _config(plan: Plan, names: tuple[str, ...]) -> dict[str, Any]:
    drafts = bool(DRAFTS & set(names))
    return {
        "target": {
            "name": "kakeya-tiny-gemma4",
            "digest": sha("target weights"),
            "format": "gemma4_text",
            "parameters": 2_680_000,
            "vocab_size": VOCABULARY,
            "dtype": plan.dtype,
        },
        "drafter": {
            "name": "kakeya-tiny-gemma4-dflash",
            "digest": sha("drafter weights"),
            "format": "dflash",
            "parameters": 850_000,
            "block_size": 8,
            "settings": {},
        }
        if drafts
        else None,
        "block_size": BLOCK if drafts else None,
        "cache_layout": "native",
        "max_new_tokens": plan.tokens,
        "stop": plan.stop,
        "stopping_ids": [STOP_ID] if plan.stop == "natural" else [],
        "seed": 0,
        "dtype": plan.dtype,
        "depth": {"policy": "fixed", "tokens": BLOCK - 1} if drafts else None,
        "prompt_set": "code-structured",
        "prompt_rule": "in file order, answers longer than the budget",
        "prefill_chunk_tokens": 512,
    }
