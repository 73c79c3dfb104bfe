"""What drafting brings on this machine's CPU as `make demo` decodes there: MLX, the packaged pair, nothing preloaded.

Each prompt is decoded by mlx-lm's own loop and at two depths, in turns. Beside the clock, processor time is taken: what
others do to a shared machine moves it less.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.decoding.depth import FixedDepth
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.arms import AUTOREGRESSIVE, SPECULATIVE, ArmSettings, start
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

PAIR, PROMPTS, TOKENS, ROUNDS = "kakeya-tiny-gemma4", 8, 128, 2
NATIVE = "mlx_lm generate_step"
DEPTHS = (3, 7)


def cases() -> Sequence[str]:
    """Return the prompts' ids."""
    return sorted(_opened()[1])


def run(case: str) -> list[Row]:
    """Decode one prompt every way, in turns.

    Raises:
        RuntimeError: a library was preloaded, or two ways gave different tokens.
    """
    if os.environ.get("LD_PRELOAD"):
        raise RuntimeError("LD_PRELOAD is set; this measures MLX without")
    engine, prompts = _opened()
    ways: dict[str, int | None] = {NATIVE: None} | {f"depth {depth}": depth for depth in DEPTHS}
    for depth in ways.values():
        _decode(engine, prompts[case], depth, 8)
    rows = []
    for turn in range(ROUNDS):
        answers = set()
        for way, depth in ways.items():
            tokens, spent = _decode(engine, prompts[case], depth, TOKENS)
            answers.add(tokens)
            rows.append({"way": way, "round": turn, "tokens": len(tokens)} | spent)
        if len(answers) > 1:
            raise RuntimeError(f"{case}: the ways gave different tokens")
    return [row | {"blas": engine.backend.blas().evidence} for row in rows]


@cache
def _opened() -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Return the packaged pair on MLX, and prompts whose answers are long enough."""

    target = resolve_model(PAIR)
    engine = open_engine(load_backend("mlx"), str(target), own_drafter(target))
    chosen = load_prompts("code-structured", Tokenizer(target), PAIR).lasting(TOKENS).spread(PROMPTS)
    return engine, {prompt.id: prompt.ids for prompt in chosen.prompts}


def _decode(
    engine: Any, ids: tuple[int, ...], depth: int | None, tokens: int
) -> tuple[tuple[int, ...], dict[str, float]]:
    """Return the tokens, and the seconds after the first of them by processor and by clock."""

    settings = ArmSettings(CacheLayout.NATIVE, lambda: FixedDepth(depth or 0), 512)
    stopping = Stopping(tokens)
    running = start(engine, AUTOREGRESSIVE if depth is None else SPECULATIVE, settings, ids, stopping)
    began = time.process_time(), time.perf_counter()
    for step in running.steps:
        if step.prefill:
            began = time.process_time(), time.perf_counter()
    ended = time.process_time(), time.perf_counter()
    return tuple(stopping.emitted), {"processor_s": ended[0] - began[0], "wall_s": ended[1] - began[1]}


STUDY = Study("fast-demo", "What does drafting bring on a CPU with nothing preloaded?", cases, run)
