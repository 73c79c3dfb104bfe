"""An honest report of what many bounded caches answer and hold."""

from __future__ import annotations

from typing import Any

from engine.reports.tokens import packed_tokens, token_digest
from tests.corpus.gate.builders import Case, envelope, sha, state_claims
from tests.corpus.gate.generations import LAYERS, MODELS, ROW_BYTES, prompt_ids
from tests.corpus.gate.runs import around

KEPT, POOL_ROWS = 68, 160
LATENT_BYTES: dict[str | None, int] = {None: 0, "f_theta": 512, "identity": 4 * 192 * LAYERS}
"""What is kept of a position: 64 values a side, or the inputs of every layer."""
ARMS: dict[str, tuple[str, str | None]] = {
    "native": ("native", None),
    "sink4+window64+pages16x10": ("sink4+window64+pages16x10", None),
    "sink4+window64+ftheta64": ("sink4+window64+ftheta64", "f_theta"),
    "sink4+window64+identity": ("sink4+window64+ftheta1", "identity"),
}
PROMPTS, PROMPT_TOKENS, ANSWER = 60, 480, 8


def bounded_recall(target: dict[str, Any], prompts: int = PROMPTS) -> Case:
    """Return a run in which every candidate drafts and finds what the native cache finds."""
    candidates = [
        {
            "arm": arm,
            "role": "baseline" if arm == "native" else "candidate",
            "layout": layout,
            "restored_from": restored,
            "drafts": arm != "native",
        }
        for arm, (layout, restored) in ARMS.items()
    ]
    ids = {f"needle-480-{number:03d}": prompt_ids(f"needle {number}", PROMPT_TOKENS) for number in range(prompts)}
    answers = [
        answer_of(candidate, name, tokens, f"{4000 + index}")
        for candidate in candidates
        for index, (name, tokens) in enumerate(ids.items())
    ]
    canary = {"layer_kind": "full", "layers": list(range(LAYERS)), "rows": 300}
    config = {
        "target": target,
        "drafter": {
            "name": "kakeya-tiny-gemma4-dflash",
            "digest": sha("drafter weights"),
            "format": "dflash",
            "parameters": 850_000,
            "block_size": 8,
            "settings": {},
        },
        "drafter_context": 256,
        "restoration": {"name": "kakeya-tiny-gemma4-ftheta64", "digest": sha("f_theta weights")},
        "dtype": "float32",
        "depth": 3,
        "prompt_set": "needle",
        "prompt_rule": "drawn from the run's nonce",
        "least_tokens": 400,
        "max_new_tokens": 28,
        "prefill_chunk_tokens": 512,
    }
    rows = {
        "candidates": candidates,
        "answers": answers,
        "layer_canaries": [canary | {"identity_logit_change": 2e-5, "noise_logit_change": 3.5}],
    }
    value = envelope("bounded_recall", wall_s=60.0, config=config, rows=rows)
    value["prompts"] = {token_digest(tokens): packed_tokens(tokens) for tokens in ids.values()}
    return state_claims(around({"report.json": value}, models=MODELS))


def answer_of(candidate: dict[str, Any], prompt: str, tokens: list[int], code: str) -> dict[str, Any]:
    """Return an honest answer of an arm."""
    drafts, layout = candidate["drafts"], candidate["layout"]
    steps, drafted, accepted = (4, 12, 3) if drafts else (ANSWER - 1, 0, 0)
    pages = "+pages" in layout
    rows = PROMPT_TOKENS + ANSWER - 1 if candidate["role"] == "baseline" else KEPT + (POOL_ROWS if pages else 0)
    index = LAYERS * 20 * PROMPT_TOKENS if pages else 0
    return {
        "arm": candidate["arm"],
        "prompt_id": prompt,
        "prompt_digest": token_digest(tokens),
        "prompt_tokens": len(tokens),
        "expected": code,
        "tokens": [int(digit) + 50 for digit in code] + [9, 8, 7, 1],
        "text": code,
        "correct": True,
        "steps": steps,
        "drafted": drafted,
        "accepted": accepted,
        "positions_forwarded": PROMPT_TOKENS + steps + drafted,
        "kv_bytes": ROW_BYTES * rows + index,
        "pool_bytes": ROW_BYTES * POOL_ROWS if pages else 0,
        "index_bytes": index,
        "drafter_bytes": 256 * 1024 if drafts else 0,
        "latent_bytes": LATENT_BYTES[candidate["restored_from"]] * (PROMPT_TOKENS + ANSWER),
        "rows_injected": 5 * LAYERS * PROMPT_TOKENS if candidate["restored_from"] else 0,
        "pages_moved": 60 if pages else 0,
        "bytes_read": 60 * 16 * 512 if pages else 0,
    }
