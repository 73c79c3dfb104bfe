"""Buffers that a cache has outgrown go back to the system while an answer is still being decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from engine.loading import load_backend  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.types import Draft  # noqa: E402
from tests.fakes import tiny_families  # noqa: E402

TOKENS, ROWS = 1100, 16
WIDE = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 4096}


def test_a_growing_cache_leaves_no_old_buffers_behind(tmp_path: Path) -> None:
    backend = load_backend("mlx")
    target = backend.load_target(tiny_families.write_family(tmp_path, "llama", **WIDE))
    accept = backend.greedy(target)
    sequence = target.open((), CacheLayout.NATIVE)
    list(sequence.prefill(tuple(range(5, 69)), 512))
    mx.clear_cache()
    while sequence.length < TOKENS:
        draft = Draft(tokens=(7,) * (ROWS - 1), count=ROWS - 1)
        accept.decide(draft, sequence.forward_block(7, draft))
        sequence.crop(sequence.length)
    assert mx.get_cache_memory() < sequence.measured_bytes() / 2
