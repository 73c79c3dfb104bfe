"""Tokens a second of a streamed cache beside the native one, in turns: packaged targets, with and without a drafter.

Every round decodes one prompt on every way, in an order that turns by one each round. Times are of decoding after the
first token; a case wants a machine that does nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache

from benchmarks.studies.study import Row, Study
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.none import NoDrafter
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

BACKENDS = ("torch", "mlx")
TARGETS = ("kakeya-tiny-qwen3", "kakeya-tiny-gemma4")
LENGTHS = (480, 1900)
KEPT = "sink4+window64"
LAYOUTS = ("native", f"{KEPT}+stream", f"{KEPT}+pages16x10+stream")
ROUNDS, TOKENS, DEPTH = 6, 48, 3


def cases() -> Sequence[str]:
    """Return every target, backend and length of a prompt."""
    return [f"{target}, {backend}, {length}" for length in LENGTHS for target in TARGETS for backend in BACKENDS]


def run(case: str, rounds: int = ROUNDS, tokens: int = TOKENS) -> list[Row]:
    """Return a row for every way: tokens a second in each round, and the median ratio to native without a drafter."""
    target, backend, length = case.split(", ")
    engine = _engine(backend, target)
    prompts = [
        each for each in load_prompts("needle", Tokenizer(engine.folder), target).prompts if f"-{length}-" in each.id
    ]
    ways = [(layout, drafts) for layout in LAYOUTS for drafts in (False, True)]
    speeds: dict[tuple[str, bool], list[float]] = {way: [] for way in ways}
    for turn in range(1 + rounds):
        for layout, drafts in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            speed = _decoded(engine, layout, prompts[turn % len(prompts)].ids, tokens, drafts=drafts)
            if turn:
                speeds[layout, drafts].append(speed)
    plain = speeds["native", False]
    return [
        {
            "layout": layout,
            "drafter": "dflash" if drafts else "none",
            "tokens_per_s": [round(speed, 2) for speed in found],
            "over_native": round(statistics.median(a / b for a, b in zip(found, plain, strict=True)), 4),
        }
        for (layout, drafts), found in speeds.items()
    ]


def _decoded(engine: Engine, layout: str, prompt: tuple[int, ...], tokens: int, *, drafts: bool) -> float:
    """Return tokens a second behind the first of one generation."""
    drafter, clock = engine.drafter if drafts else NoDrafter(), engine.backend.clock
    sequence = engine.target.open(drafter.capture, CacheLayout.parse(layout))
    parts = Parts(sequence, drafter.open(), engine.accept, FixedDepth(DEPTH if drafts else 0), clock)
    steps = speculative(parts, prompt, Stopping(tokens, frozenset()))
    next(steps)
    began = clock.now_ns()
    made = sum(len(step.tokens) for step in steps)
    seconds = (clock.now_ns() - began) / 1e9
    sequence.close()
    return made / seconds


@cache
def _engine(backend: str, target: str) -> Engine:
    folder = resolve_model(target)
    return open_engine(load_backend(backend, "cpu" if backend == "torch" else None), str(folder), own_drafter(folder))


STUDY = Study("streamed-speed", "How fast is decoding on a streamed cache beside the native one?", cases, run)
