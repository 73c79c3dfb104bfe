"""The drafter in this process, the same one in another, and plain decoding: drafts and output, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.benchmarks.remote import RemoteTrial
from engine.decoding.depth import FixedDepth
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.tokenizer import Tokenizer

PAIR, PART, PARTS, SHORT_TOKENS, LONG_TOKENS, LONG_PROMPT = "kakeya-tiny-gemma4", 4, 15, 64, 48, 1100
LENGTHS = ("short", "long")
ROWS = ("exact", "bfloat16")


def cases() -> Sequence[str]:
    """Return the prompts in parts; those of a ``long`` part are joined until they reach past 1,024 tokens.

    Older entries, ``short, part 0`` and so on, compared positions and lengths of drafts without their ids.
    """
    return [f"{length}, by id, part {part}" for part in range(PARTS) for length in LENGTHS]


@cache
def _opened() -> tuple[Any, list[tuple[int, ...]], dict[str, Any]]:
    target = resolve_model(PAIR)
    engine = open_engine(load_backend("mlx"), str(target), own_drafter(target))
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts
    process = DrafterProcess(["--target", PAIR])
    channel = DrafterChannel(process.address, DFLASH)
    remote = {
        rows: remote_model(channel, engine.backend, engine.target, engine.folder, rows=rows, patience_s=3600.0)
        for rows in ROWS
    }
    return engine, [prompt.ids for prompt in prompts], remote


def run(case: str) -> list[Row]:
    """Decode the prompts of a part with the drafter here and elsewhere, rows as they are and halved, and plainly."""
    length, _, part = case.partition(", by id, part ")
    engine, prompts, remote = _opened()
    first = int(part) * PART
    chosen = [prompts[(first + number) % len(prompts)] for number in range(PART)]
    tokens = SHORT_TOKENS
    if length == "long":
        tokens = LONG_TOKENS
        joined = [prompts[(first + number) :] + prompts[: first + number] for number in range(PART)]
        chosen = [tuple(token for prompt in each for token in prompt)[:LONG_PROMPT] for each in joined]
    trial, depth, found = RemoteTrial(engine, tokens), FixedDepth(3, waits=True), []
    for number, prompt in enumerate(chosen):
        here, plain = trial.decode(prompt, engine.drafter, depth), trial.decode(prompt, None, FixedDepth(0))
        for rows, model in remote.items():
            there = trial.decode(prompt, model, depth)
            found.append(
                {
                    "prompt": first + number,
                    "prompt_tokens": len(prompt),
                    "rows": rows,
                    "same_ids": there.drafted_as(here),
                    "same_output": there.tokens == here.tokens == plain.tokens,
                    **there.row(),
                }
            )
    return found


STUDY = Study("remote-identity", "Does a drafter elsewhere draft what the same one drafts here?", cases, run)
