"""How many drafted tokens are accepted when the newest block's features have not arrived: a drafter and a lag a case.

Whoever drafts while a block is still being verified knows its tokens, by guess, and not its features. One plain
trajectory a prompt is enough to replay that, since greedy output does not depend on drafts. The shipped drafter is
compared with itself trained further while features lag, and, as a control, trained as long while none do. A labelled
study: nothing in the engine drafts that way.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.checkpoint import ASSETS

TARGET, SET, KIND = "kakeya-tiny-gemma4", "code-structured", "structured-long"
PROMPTS, TOKENS = 24, 160
SHIPPED, LAGGED, CONTROL = "shipped", "trained with a lag", "trained without"
LAGS, DEPTHS = (0, 1), (3, 7)
STEPS, WARMUP_STEPS, ROWS, LAG, SEED = 48, 8, 160, 8, 1
"""Of the further training, a few minutes on one core: as many tokens may lag as the largest block commits."""
MATRIX_LR, VECTOR_LR = 0.005, 5e-4
"""A quarter of what drafters are trained with from nothing."""


def cases() -> Sequence[str]:
    """Return every drafter with and without a lag, at each depth; the shipped one first, which trains nothing."""
    return [case(*which) for which in product((SHIPPED, LAGGED, CONTROL), LAGS, DEPTHS)]


def case(drafter: str, lag: int, depth: int) -> str:
    """Return the name of a case; ``lag`` is how many verified blocks lack their features."""
    return f"{drafter}, lag {lag} blocks, depth {depth}"


def run(name: str) -> list[Row]:
    """Replay every prompt with a drafter whose features lag so much."""
    from engine.cards.acceptance import summarise  # noqa: PLC0415 (imports torch, the registry does not)

    drafter, lag, depth = next(
        which for which in product((SHIPPED, LAGGED, CONTROL), LAGS, DEPTHS) if case(*which) == name
    )
    model = _drafter(drafter)
    walks = [lagged_walk(_target(), model, tokens, start, depth, lag) for tokens, start in _trajectories()]
    found = summarise(drafter, depth + 1, walks)
    return [
        {
            "drafter": drafter, "lag_blocks": lag, "depth": depth, "prompts": found.prompts,
            "steps": sum(len(walk.accepted_per_step) for walk in walks),
            "tokens_per_step": round(found.pooled, 4), "mean": round(found.mean, 4),
            "lower": round(found.lower, 4), "upper": round(found.upper, 4),
            "steps_trained": 0 if drafter == SHIPPED else STEPS,
        }
    ]  # fmt: skip


def lagged_walk(target: Any, drafter: Any, tokens: Sequence[int], start: int, depth: int, lag: int) -> Any:
    """Walk the steps of a greedy speculative run whose newest ``lag`` blocks lack their features.

    Args:
        target: The target that the tokens are of, in transformers.
        drafter: A DFlash drafter of it.
        tokens: Prompt and greedy output.
        start: Position of the first output token.
        depth: Tokens a draft.
        lag: Verified blocks whose features are missing; their tokens stand before the bonus.
    """
    from engine.cards.acceptance import walk  # noqa: PLC0415 (as above)

    propose, bonuses = _proposer(target, drafter, tokens, depth), []

    def drafted(position: int) -> Sequence[int]:
        bonuses.append(position)
        known = bonuses[-1 - min(lag, len(bonuses) - 1)]
        return propose(max(known, 1), position)

    return walk(tokens, start, drafted)


def _proposer(target: Any, drafter: Any, tokens: Sequence[int], depth: int) -> Callable[[int, int], Sequence[int]]:
    """Return what drafts behind a bonus, given from which position on features are missing."""
    import torch  # noqa: PLC0415 (as above)

    settings, ids = drafter.config["dflash_config"], torch.tensor([list(tokens)])
    table = target.model.model.embed_tokens.weight
    with torch.no_grad():
        output = target.model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
    layers = settings["target_layer_ids"]
    features = torch.cat([output.hidden_states[layer + 1] for layer in layers], dim=-1)

    def propose(known: int, bonus: int) -> Sequence[int]:
        block = torch.cat([ids[:, known : bonus + 1], torch.full((1, depth), settings["mask_token_id"])], dim=1)
        rows = block.shape[1]
        embedded = torch.nn.functional.embedding(block, table) * settings["input_embedding_scale"]
        context, where = torch.arange(known)[None], torch.arange(known, known + rows)[None]
        mask = torch.ones(1, 1, rows, known + rows, dtype=torch.bool)
        with torch.no_grad():
            hidden = drafter(embedded, features[:, :known], context, where, mask)[0, -depth:]
            found: list[int] = torch.nn.functional.linear(hidden, table).argmax(-1).tolist()
        return found

    return propose


@cache
def _target() -> Any:
    from engine.cards.loading import load_target  # noqa: PLC0415 (as above)

    return load_target(ASSETS / TARGET)


@cache
def _trajectories() -> list[tuple[tuple[int, ...], int]]:
    """Return prompts with the target's own continuation, and where that begins."""
    from engine.measurement.selection import load_prompts  # noqa: PLC0415 (as above)
    from engine.tokenizer import Tokenizer  # noqa: PLC0415
    from engine.training.responses import ResponseRequest, regenerate_in_order  # noqa: PLC0415

    prompts = load_prompts(SET, Tokenizer(ASSETS / TARGET), TARGET).prompts
    asked = [prompt.ids for prompt in prompts if prompt.id.startswith(KIND)][:PROMPTS]
    requests = [ResponseRequest(ids, TOKENS, TOKENS) for ids in asked]
    answers = regenerate_in_order(_target().model, requests)
    return [(answer.ids, answer.prompt_tokens) for answer in answers if len(answer.ids) > answer.prompt_tokens + 1]


@cache
def _drafter(name: str) -> Any:
    """Return a drafter; one that is trained goes on in the temporary folder where it was stopped."""
    from engine.cards.loading import load_drafter  # noqa: PLC0415 (as above)
    from engine.training.dflash import DrafterRun, train_drafter  # noqa: PLC0415

    shipped = ASSETS / f"{TARGET}-dflash"
    if name == SHIPPED:
        return load_drafter(shipped)
    folders = {each: Path(tempfile.gettempdir()) / f"kakeya-study-lag-{lag}" for each, lag in _lags().items()}
    work, out = folders[name], folders[name] / "out"
    for other in folders.values():  # the same rows are answered once
        if not (work / "responses.json").exists() and (other / "responses.json").exists():
            work.mkdir(parents=True, exist_ok=True)
            shutil.copy(other / "responses.json", work / "responses.json")
    run = DrafterRun(
        seed=SEED, steps=STEPS, rows=ROWS, work=work, matrix_lr=MATRIX_LR, vector_lr=VECTOR_LR,
        warmup_steps=WARMUP_STEPS, lag=_lags()[name], start=shipped,
    )  # fmt: skip
    train_drafter(ASSETS / TARGET, out, run)
    return load_drafter(out)


def _lags() -> dict[str, int]:
    return {LAGGED: LAG, CONTROL: 0}


STUDY = Study("lagged-features", "What do features that come a block late cost in accepted tokens?", cases, run)
