"""Choosing a drafter at each step beside every single drafter: four kinds of text, the packaged pair on MLX.

Each prompt is decoded every way, in turns of a few tokens. A policy learns from cold over the prompts of a case, as it
does over the turns of a conversation; ``cold`` rows begin anew with each prompt. Beside the clock, processor time is
taken: what others do to a shared machine moves it less.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.bench.turns import SLICE_TOKENS
from engine.decoding.speculative import Parts, speculative
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import Prompt, load_prompts
from engine.options import depth_factory
from engine.protocols import Depth
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

PAIR, TOKENS, PART = "kakeya-tiny-gemma4", 512, 3
TEXTS = Path(__file__).resolve().parents[1] / "texts"
SETS = ("structured", "code", "prose", "mixed")
NATIVE, CHOICE, COLD = "mlx_lm generate_step", "choice", "choice, cold"
SINGLE = {
    "dflash, depth 3": ("dflash", "3"),
    "dflash, depth 7": ("dflash", "7"),
    "dflash, depth auto": ("dflash", "auto"),
    "ngram, depth 3": ("ngram", "3"),
    "ngram, depth 16": ("ngram", "16"),
    "ngram, depth auto": ("ngram", "auto"),
}


def cases() -> Sequence[str]:
    """Return the sets in parts of ``PART`` prompts."""
    return [f"{name}, part {part}" for part in (1, 2) for name in SETS]


def run(case: str) -> list[Row]:
    """Decode the prompts of a part every way.

    Raises:
        RuntimeError: two ways gave different tokens.
    """
    name, part = case.split(", part ")
    engine = _engines()["dflash"]
    prompts = load_prompts(str(TEXTS / f"{name}.json"), Tokenizer(engine.folder), PAIR).prompts
    kept: dict[str, Depth] = {way: _depth(way)[1]() for way in (*SINGLE, CHOICE)}
    _warm_up(prompts[-1])
    rows: list[Row] = []
    for prompt in prompts[(int(part) - 1) * PART :][:PART]:
        decodes = {way: Taken(_steps(way, prompt, policy)) for way, policy in kept.items()}
        decodes[COLD] = Taken(_steps(CHOICE, prompt, _depth(CHOICE)[1]()))
        decodes[NATIVE] = Taken(step.tokens for step in engine.native.decode(prompt.ids, Stopping(TOKENS), 512))
        _in_turns(list(decodes.values()), random.Random(prompt.id))
        if len({tuple(decode.tokens) for decode in decodes.values()}) > 1:
            raise RuntimeError(f"{prompt.id}: the ways gave different tokens")
        rows += [{"prompt": prompt.id, "way": way} | decode.row() for way, decode in decodes.items()]
    return rows


@dataclass
class Taken:
    """A decode in turns, and what they took after the prefill."""

    steps: Iterator[tuple[int, ...]]
    tokens: list[int] = field(default_factory=list)
    processor_s: float = 0.0
    wall_s: float = 0.0

    def advance(self, until: int) -> bool:
        """Go on until there are ``until`` tokens; return whether there may be more. The first turn is the prefill."""
        began, prefill = (time.process_time(), time.perf_counter()), not self.tokens
        while len(self.tokens) < until and (step := next(self.steps, None)) is not None:
            self.tokens += step
        if not prefill:
            self.processor_s += time.process_time() - began[0]
            self.wall_s += time.perf_counter() - began[1]
        return len(self.tokens) >= until

    def row(self) -> Row:
        """Return what a report keeps of it."""
        return {"tokens": len(self.tokens), "processor_s": self.processor_s, "wall_s": self.wall_s}


def _in_turns(decodes: Sequence[Taken], chooser: random.Random) -> None:
    going, until = list(decodes), 1
    while going:
        chooser.shuffle(going)
        going = [decode for decode in going if decode.advance(until)]
        until += SLICE_TOKENS


def _warm_up(prompt: Prompt) -> None:
    for way in (*SINGLE, CHOICE):
        Taken(_steps(way, prompt, _depth(way)[1]())).advance(2 * SLICE_TOKENS)


def _depth(way: str) -> tuple[Engine, Callable[[], Depth]]:
    """Return the engine of a way and a maker of its policy."""
    drafter, depth = SINGLE.get(way, (CHOICE, "auto"))
    engine = _engines()[drafter]
    return engine, depth_factory(depth, engine)[0]


def _steps(way: str, prompt: Prompt, policy: Depth) -> Iterator[tuple[int, ...]]:
    engine = _depth(way)[0]
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, engine.drafter.open(), engine.accept, policy, engine.backend.clock, engine.resident)
    return (step.tokens for step in speculative(parts, prompt.ids, Stopping(TOKENS)))


@cache
def _engines() -> dict[str, Any]:
    """Return the packaged pair with each drafter, over one target."""
    target = resolve_model(PAIR)
    backend, own = load_backend("mlx"), own_drafter(target)
    first = open_engine(backend, str(target), own)
    others = {"ngram": "ngram", CHOICE: f"{own},ngram"}
    return {"dflash": first} | {
        name: replace(open_engine(backend, str(target), named), target=first.target, accept=first.accept)
        for name, named in others.items()
    }


STUDY = Study("drafting-choice", "Is choosing a drafter at each step as good as the best one of each text?", cases, run)
