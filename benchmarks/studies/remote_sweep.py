"""Speed with a drafter behind links of several round-trip times against plain decoding, prompt by prompt in one run.

The target is the packaged one, and the same slowed by sleeping to 40 ms a token: an emulation, and labelled so. The
remote drafter is forced: no planner may leave it out; the controller of each decode begins cold.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.benchmarks.remote import RemoteTrial
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.options import longest_draft
from engine.tokenizer import Tokenizer

PAIR, PROMPTS, PART, TOKENS = "kakeya-tiny-gemma4", 60, 4, 512
TRIPS_MS = (0, 5, 20, 50, 100, 150)
TARGETS_MS = (40, 0)
PLAIN, HERE = "plain", "here"


def cases() -> Sequence[str]:
    """Return each target and round-trip time in parts of ``PART`` prompts, parts outermost."""
    parts = range(PROMPTS // PART)
    return [
        f"{target} ms a token, {trip} ms, part {part}" for part in parts for target in TARGETS_MS for trip in TRIPS_MS
    ]


@cache
def _engine() -> Any:
    target = resolve_model(PAIR)
    return open_engine(load_backend("mlx"), str(target), own_drafter(target))


@cache
def _remote(trip_ms: int) -> Any:
    engine = _engine()
    link = DelayedLink(_server().address, trip_ms)
    channel = DrafterChannel(link.address, DFLASH)
    return remote_model(channel, engine.backend, engine.target, engine.folder, rows="bfloat16")


@cache
def _server() -> DrafterProcess:
    return DrafterProcess(["--target", PAIR])


def run(case: str) -> list[Row]:
    """Decode the prompts of a part plainly, with the drafter here and elsewhere, in a drawn order.

    Raises:
        RuntimeError: two ways gave different tokens.
    """
    target, trip, part = case.split(", ")
    engine, model = _engine(), _remote(int(trip.split()[0]))
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts
    trial, rows = RemoteTrial(engine, TOKENS, int(target.split()[0]) / 1e3), []
    ways = {PLAIN: None, HERE: engine.drafter, "elsewhere": model}
    first = int(part.split()[1]) * PART
    for prompt in [prompts[(first + number) % len(prompts)] for number in range(PART)]:
        order = list(ways)
        random.Random(f"{case}/{prompt.id}").shuffle(order)
        decodes = {}
        for way in order:
            drafter = ways[way]
            depth = FixedDepth(0) if drafter is None else ControlledDepth(longest_draft(drafter))
            decodes[way] = trial.decode(prompt.ids, drafter, depth)
        if len({decode.tokens for decode in decodes.values()}) > 1:
            raise RuntimeError(f"{case}, {prompt.id}: the ways gave different tokens")
        rows += [{"prompt": prompt.id, "way": way} | decode.row() for way, decode in decodes.items()]
    return rows


STUDY = Study("remote-sweep", "What is a remote drafter worth at which round-trip time?", cases, run)
