"""Speed with a drafter behind links of several round-trip times against plain decoding, prompt by prompt in one run.

The target is the packaged one, and the same slowed by sleeping to 40 ms a token: an emulation, labelled so. Once the
remote drafter is forced, and once the planner may leave it out, by terms measured on other prompts. The controller of
each decode begins cold. The first cases are four pairs of each point but one, so that a curve is soon there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.benchmarks.remote import RemoteTrial, measured_terms
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.placement import PlacementSnapshot, plan
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
TRIPS_MS = (0, 20, 50, 100, 150)
LATER_MS = (5,)
TARGETS_MS = (40, 0)
PLAIN, HERE, FORCED, PLANNED = "plain", "here", "elsewhere", "planned"
TERMS_PROMPTS, TERMS_TOKENS, TERMS_DEPTH = 2, 64, 3


def cases() -> Sequence[str]:
    """Return each target and round-trip time in parts of ``PART`` prompts, parts outermost."""
    parts = range(PROMPTS // PART)
    return [
        f"{target} ms a token, {trip} ms, part {part}"
        for part in parts
        for trips in (TRIPS_MS, LATER_MS)
        for target in TARGETS_MS
        for trip in trips
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


@cache
def _planned(target_ms: int, trip_ms: int) -> Any:
    """Return the drafter that the planner chooses for a link, None for none."""
    engine, model = _engine(), _remote(trip_ms)
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts[-TERMS_PROMPTS:]
    trial, depth = RemoteTrial(engine, TERMS_TOKENS, target_ms / 1e3), FixedDepth(TERMS_DEPTH, waits=True)
    # The first prompt of each warms both ways up.
    plain = [trial.decode(prompt.ids, None, FixedDepth(0)) for prompt in (prompts[0], *prompts)][1:]
    there = [trial.decode(prompt.ids, model, depth) for prompt in (prompts[0], *prompts)][1:]
    plain_s = sum(one.decode_s for one in plain) / sum(len(one.drafts) for one in plain)
    return model if plan(PlacementSnapshot(plain_s, (measured_terms("there", there),))).node else None


def run(case: str) -> list[Row]:
    """Decode the prompts of a part in a drawn order of ways: plain, drafter here, elsewhere, as the planner says.

    Raises:
        RuntimeError: two ways gave different tokens.
    """
    target, trip, part = case.split(", ")
    engine, model = _engine(), _remote(int(trip.split()[0]))
    planned = _planned(int(target.split()[0]), int(trip.split()[0]))
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts
    trial, rows = RemoteTrial(engine, TOKENS, int(target.split()[0]) / 1e3), []
    ways = {PLAIN: None, HERE: engine.drafter, FORCED: model, PLANNED: planned}
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
        drafts = {way: drafter is not None for way, drafter in ways.items()}
        rows += [{"prompt": prompt.id, "way": way, "asks": drafts[way]} | one.row() for way, one in decodes.items()]
    return rows


STUDY = Study("remote-sweep", "What is a remote drafter worth at which round-trip time?", cases, run)
