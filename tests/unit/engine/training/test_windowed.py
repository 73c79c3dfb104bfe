"""Chunked window attention equals attention under the window's mask."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from engine.training.network.windowed import chunked  # noqa: E402 - needs torch


@pytest.mark.parametrize("chunks", [1, 3, 8])
def test_chunked_attention_equals_masked_attention(chunks):
    generator = torch.Generator().manual_seed(chunks)
    window, length = 16, 16 * chunks
    query, key, value = (torch.randn(2, 3, length, 8, generator=generator) for _ in range(3))
    rows = torch.arange(length)
    distance = rows[:, None] - rows[None, :]
    mask = (distance >= 0) & (distance < window)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
    got = chunked(query, key, value, window, 0.3)
    assert float((got - expected).abs().max()) < 1e-5
