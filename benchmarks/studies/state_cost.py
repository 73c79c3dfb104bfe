"""What putting recurrent states back costs: a block on a hybrid, cropped everywhere, a backend a case."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.backends.recurrent import RecurrentState
from engine.loading import load_backend
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes import tiny_families

BLOCK = 8
TURNS = 30
PROMPT = 64
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "num_attention_heads": 8,
    "head_dim": 64,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}
"""Proportions of Qwen3.5-4B, small enough for a CPU."""


def cases() -> Sequence[str]:
    """Return the backends."""
    return ("mlx", "torch")


def run(case: str, turns: int = TURNS) -> list[Row]:
    """Return a row for every number of rows that stay, with medians in milliseconds and bytes."""
    backend = load_backend(case, device="cpu" if case == "torch" else None)
    with tempfile.TemporaryDirectory() as folder:
        target = backend.load_target(tiny_families.write_family(Path(folder), "qwen3_5_text", **SIZES))
        sequence = target.open((), CacheLayout.NATIVE)
        for _ in sequence.prefill((7,) * PROMPT, 512):
            pass
        accept = backend.greedy(target)
        return [measured(sequence, accept, kept, turns) for kept in range(BLOCK + 1)]


def measured(sequence: Any, accept: Any, kept: int, turns: int) -> Row:
    """Return what a block and its crop to ``kept`` rows take; an array library that is lazy is made to finish."""
    states = [cache for cache in caches_of(sequence) if isinstance(cache, RecurrentState)]
    blocks, crops, held = [], [], 0
    draft = Draft(tokens=tuple(range(9, 8 + BLOCK)), count=BLOCK - 1)
    for _ in range(turns + 2):
        begin = sequence.length
        began = time.perf_counter()
        accept.decide(draft, sequence.forward_block(8, draft))
        finish(states)
        blocks.append(time.perf_counter() - began)
        held = sum(state.measured_bytes() for state in states)
        began = time.perf_counter()
        sequence.crop(begin + kept)
        finish(states)
        crops.append(time.perf_counter() - began)
    settled = sum(state.measured_bytes() for state in states)
    block_s, crop_s = median(blocks[2:]), median(crops[2:])
    return {
        "kept": kept,
        "block_ms": round(block_s * 1e3, 3),
        "crop_ms": round(crop_s * 1e3, 3),
        "share": round(crop_s / block_s, 4),
        "state_bytes": settled,
        "bytes_to_go_back": held - settled,
    }


def caches_of(sequence: Any) -> Sequence[Any]:
    """Return the caches of a sequence by layer."""
    return getattr(sequence.caches, "layers", sequence.caches)


def finish(states: Sequence[RecurrentState]) -> None:
    """Have every array of the states computed."""
    for state in states:
        for array in state.buffers():
            array.sum().item()


STUDY = Study("state-cost", "What does putting recurrent states back cost?", cases, run)
