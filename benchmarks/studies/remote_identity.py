"""The drafter in this process, the same one in another, and plain decoding: drafts and output, byte for byte.

The other process is on loopback, or in a network namespace of its own, which needs root: without it those cases say so
and stay open.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.studies.namespaces import FarDrafter
from benchmarks.studies.study import Row, Study
from engine.bench.remote import RemoteDecode, RemoteTrial
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
LOOPBACK, NAMESPACES, EIGHT_BITS = "loopback", "namespaces", "loopback in 8 bits"
ROWS = {LOOPBACK: ("exact", "bfloat16"), NAMESPACES: ("exact",), EIGHT_BITS: ("float8_e4m3",)}
"""What is sent each way: rows as they are, halved, and in a byte a number."""
DEPTH = FixedDepth(3, waits=True)


def cases() -> Sequence[str]:
    """Return the prompts in parts, each way; those of a ``long`` part are joined until they reach past 1,024 tokens.

    Older entries, ``short, part 0`` and so on, compared positions and lengths of drafts without their ids.
    """
    parts = [(length, part) for part in range(PARTS) for length in LENGTHS]
    ways = ((LOOPBACK, NAMESPACES), (EIGHT_BITS,))
    return [f"{length}, {way}, by id, part {part}" for each in ways for length, part in parts for way in each]


@cache
def _engine() -> Any:
    target = resolve_model(PAIR)
    return open_engine(load_backend("mlx"), str(target), own_drafter(target))


@cache
def _prompts() -> list[tuple[int, ...]]:
    return [prompt.ids for prompt in load_prompts("code-structured", Tokenizer(_engine().folder), PAIR).prompts]


@cache
def _remote(way: str) -> dict[str, Any]:
    """Return the drafter elsewhere for each kind of rows; one server a way, for as long as the study runs."""
    engine = _engine()
    server = FarDrafter(["--target", PAIR]) if way == NAMESPACES else DrafterProcess(["--target", PAIR])
    atexit.register(server.close)
    channel = DrafterChannel(server.address, DFLASH)
    atexit.register(channel.close)
    return {
        rows: remote_model(channel, engine.backend, engine.target, engine.folder, rows=rows, patience_s=3600.0)
        for rows in ROWS[way]
    }


def _prompt(length: str, number: int) -> tuple[int, ...]:
    prompts = _prompts()
    first = number % len(prompts)
    if length == "short":
        return prompts[first]
    return tuple(token for prompt in prompts[first:] + prompts[:first] for token in prompt)[:LONG_PROMPT]


@cache
def _here(length: str, number: int) -> tuple[RemoteDecode, RemoteDecode]:
    """Return what is decoded with the drafter of this process, and plainly."""
    trial, prompt = _trial(length), _prompt(length, number)
    return trial.decode(prompt, _engine().drafter, DEPTH), trial.decode(prompt, None, FixedDepth(0))


def _trial(length: str) -> RemoteTrial:
    return RemoteTrial(_engine(), SHORT_TOKENS if length == "short" else LONG_TOKENS)


def run(case: str) -> list[Row]:
    """Decode the prompts of a part with the drafter here and elsewhere, and plainly.

    Raises:
        RuntimeError: there can be no network namespace here.
    """
    length, way, _, part = case.split(", ")
    remote, found = _remote(way), []
    for number in range(int(part.split()[1]) * PART, (int(part.split()[1]) + 1) * PART):
        prompt = _prompt(length, number)
        here, plain = _here(length, number)
        for rows, model in remote.items():
            there = _trial(length).decode(prompt, model, DEPTH)
            found.append(
                {
                    "prompt": number,
                    "prompt_tokens": len(prompt),
                    "way": way,
                    "rows": rows,
                    "same_ids": there.drafted_as(here),
                    "same_output": there.tokens == here.tokens == plain.tokens,
                    **there.row(),
                }
            )
    return found


STUDY = Study("remote-identity", "Does a drafter elsewhere draft what the same one drafts here?", cases, run)
