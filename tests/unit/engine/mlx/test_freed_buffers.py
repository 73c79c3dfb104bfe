"""Buffers that a cache has outgrown go back to the system while an answer is still being decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from engine.loading import load_backend  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.types import Draft  # noqa: E402
from tests.fakes import tiny_families  # noqa: E402

TOKENS, ROWS = 1100, 16
WIDE = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 4096}


MOST_BESIDE = 0.2
"""Of the live bytes: what is freed and not given back may take, where caches have just grown."""


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.ci), ROWS])
def test_buffers_that_a_cache_has_outgrown_are_gone_when_its_next_token_is_there(tmp_path: Path, rows: int) -> None:
    backend = load_backend("mlx")
    target = backend.load_target(tiny_families.write_family(tmp_path, "llama", **WIDE))
    accept = backend.greedy(target)
    sequence = target.open((), CacheLayout.NATIVE)
    list(sequence.prefill(tuple(range(5, 69)), 512))
    mx.clear_cache()

    def positions() -> Iterator[int]:
        if rows == 1:
            yield from (forward.start for _, forward in sequence.decode_ahead(7, TOKENS))
        while sequence.length < TOKENS:
            draft = Draft(tokens=(7,) * (rows - 1), count=rows - 1)
            accept.decide(draft, sequence.forward_block(7, draft))
            sequence.crop(sequence.length)
            yield sequence.length

    shares = [mx.get_cache_memory() / mx.get_active_memory() for at in positions() if at % 256 == 0]
    assert len(shares) >= TOKENS // 256
    assert max(shares) <= MOST_BESIDE
