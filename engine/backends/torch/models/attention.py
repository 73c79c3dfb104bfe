"""Attention for the engine's own forwards: queries packed by key head under a mask.

Under a mask transformers' ``sdpa`` repeats keys and values for every query head, so a block of a few rows would copy
the whole context once a layer. Here the queries that share a key head become rows of it instead, which is the same
arithmetic on the same numbers. It has a name of its own and reaches only the layers made by `packing`: the module that
transformers loaded, the baseline of every comparison, keeps what it was opened with.

Shapes: B batch, S rows, H query heads, G key heads, R = H / G, C cached rows, E values of a head.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

PACKED = "kakeya_packed"
"""The name under which transformers' layers find it."""
PACKED_ROWS = 32
"""Blocks of up to so many rows are packed. Chunks of a prompt are not: they repay the copy of keys and values."""


def attend_packed(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as ``sdpa`` does, packed where a short block under a mask has several queries a key head.

    Args:
        module: The attention module that asks.
        query: ``[B, H, S, E]``.
        key: ``[B, G, C, E]``.
        value: ``[B, G, C, E]``.
        attention_mask: bool ``[B or 1, 1 or H, S, C]``, True where a query may attend, or None.
        scaling: What scores are multiplied by.
        others: What else transformers hands over.

    Returns:
        ``[B, S, H, E]``, and None for the weights.
    """
    batch, heads, rows, _ = query.shape
    shared = heads // key.shape[1]
    if attention_mask is None or shared == 1 or rows > PACKED_ROWS:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    by_key_head = (batch, key.shape[1], shared * rows, -1)
    # The queries of a key head stand one after another, each with all its rows.
    if attention_mask.shape[1] == 1:
        mask = attention_mask.repeat(1, 1, shared, 1)
    else:
        mask = attention_mask.reshape(attention_mask.shape[0], *by_key_head[1:])
    attended = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(by_key_head), key, value, attn_mask=mask, scale=scaling
    )
    return attended.reshape(batch, heads, rows, -1).transpose(1, 2).contiguous(), None


def packing(layer: Any) -> Any:
    """Return a layer over the same weights whose attention packs; the layer itself stays as it is.

    A layer without attention, or with one that computes its own scores, is returned itself.
    """
    attention = getattr(layer, "self_attn", None)
    if attention is None or attention.config._attn_implementation != "sdpa":
        return layer
    attention, layer = copy.copy(attention), copy.copy(layer)
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = PACKED
    layer._modules = layer._modules | {"self_attn": attention}
    return layer


ALL_ATTENTION_FUNCTIONS.register(PACKED, attend_packed)
