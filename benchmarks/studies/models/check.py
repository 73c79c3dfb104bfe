"""Whether the engine decodes of real models what transformers decodes of the same weights, on HumanEval's prompts.

Each prompt is decoded greedily by ``transformers.generate``, and by the engine on both backends with prompt lookup, so
that blocks are verified and rejected as in use. Where tokens differ, the row says at which one, and how far apart the
two candidates' logits are: a tie in float32 is no difference of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.studies.study import Entry, Row, Study, rows_of
from engine.checkpoint import resolve_model
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.installed_prompts import installed_set
from engine.loading import load_backend
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Step

MODELS = ("SmolLM2-135M-Instruct", "gemma-3-270m")
BACKENDS = ("mlx", "torch")
PROMPTS, BLOCK = 164, 4
NEW_TOKENS, DEPTH, CHUNK = 64, 7, 512
TIE = 1e-3
"""Logits apart that float32 sums in another order may turn."""


def cases() -> list[str]:
    """Return a case for every few prompts of each model, the models in turns."""
    return [f"{model} {start}" for start in range(0, PROMPTS, BLOCK) for model in MODELS]


def run(case: str) -> list[Row]:
    """Decode the prompts of a case with everybody."""
    import torch  # noqa: PLC0415 (listing the studies needs no array library)

    torch.set_num_threads(1)
    model, start = case.rsplit(" ", 1)
    folder = resolve_model(model)
    words, library = Tokenizer(folder), stock(str(folder))
    rows = []
    for prompt in installed_set("humaneval")["prompts"][int(start) : int(start) + BLOCK]:
        ids = words.encode(prompt["text"])
        with torch.inference_mode():
            answer = library.generate(
                torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        expected = answer[0, len(ids) :].tolist()
        row: Row = {"model": model, "prompt": prompt["id"], "prompt_tokens": len(ids)}
        for name in BACKENDS:
            steps = decoded(name, folder, ids)
            tokens = [token for step in steps for token in step.tokens]
            decoding = [step for step in steps if not step.prefill]
            forwards = sum(step.target_forwards for step in decoding)
            row[name] = compared(library, ids, expected, tokens) | {
                "tokens_per_forward": round(sum(step.committed for step in decoding) / forwards, 3)
            }
        rows.append(row)
    return rows


def decoded(name: str, folder: Path, ids: tuple[int, ...]) -> list[Step]:
    """Return the steps in which the engine decodes a prompt greedily, on a backend, with prompt lookup."""
    backend, target, drafter = _engine(name, str(folder))
    parts = Parts(
        target.open((), CacheLayout.NATIVE), drafter.open(), backend.greedy(target), FixedDepth(DEPTH), backend.clock
    )
    return list(speculative(parts, ids, Stopping(NEW_TOKENS), CHUNK))


def compared(library: Any, ids: tuple[int, ...], expected: list[int], tokens: list[int]) -> dict[str, Any]:
    """Say whether two answers are one, else where they part and how far apart the library's logits of both are."""
    import torch  # noqa: PLC0415

    if tokens == expected:
        return {"equal": True}
    at = next(
        (index for index, pair in enumerate(zip(tokens, expected, strict=False)) if pair[0] != pair[1]), len(tokens)
    )
    with torch.inference_mode():
        logits = library(torch.tensor([[*ids, *expected[:at]]])).logits[0, -1]
    apart = float(logits[expected[at]] - logits[tokens[at]])
    return {"equal": False, "parts_at": at, "logits_apart": apart, "tie": abs(apart) < TIE}


@cache
def stock(folder: str) -> Any:
    """Return the library's own model of a folder, in float32."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()


@cache
def _engine(name: str, folder: str) -> tuple[Any, Any, Any]:
    backend = load_backend(name, device="cpu" if name == "torch" else None)
    return backend, backend.load_target(Path(folder)), NgramModel()


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many answers are equal, by model and backend."""
    rows = rows_of(entries)
    lines = []
    for model in MODELS:
        own = [row for row in rows if row["model"] == model]
        for name in BACKENDS if own else ():
            results = [row[name] for row in own]
            equal = sum(result["equal"] for result in results)
            ties = sum(result.get("tie", False) for result in results)
            accepted = sum(result["tokens_per_forward"] for result in results) / len(results)
            lines.append(
                f"{model} {name}: {equal} of {len(results)} answers of {NEW_TOKENS} tokens equal transformers', "
                f"{ties} part at a tie, {len(results) - equal - ties} differ; {accepted:.2f} tokens a forward"
            )
    return lines


STUDY = Study(
    "models-check",
    "does the engine decode of real models what transformers decodes?",
    cases,
    run,
    "45 minutes, one thread",
    summary,
)
