"""Attention of sliding layers in chunks of the window: the same values for a fraction of the work on long rows."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's customary name

NAME = "kakeya_windowed"


def chunked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int, scale: float) -> torch.Tensor:
    """Attend causally within `window`, each chunk of `window` queries to its own and the previous chunk of keys.

    Args:
        query: [rows, heads, length, width], length a multiple of the window.
        key: [rows, heads, length, width].
        value: [rows, heads, length, width].
        window: How many positions a query sees, its own included.
        scale: Factor on the scores.
    """
    rows, heads, length, width = query.shape
    count = length // window

    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(rows, heads, count, window, width).transpose(1, 2)

    def with_previous(x: torch.Tensor) -> torch.Tensor:
        chunks = split(x)
        previous = F.pad(chunks[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
        return torch.cat([previous, chunks], dim=3).flatten(0, 1)

    device = query.device
    row, column = torch.arange(window, device=device)[:, None], torch.arange(2 * window, device=device)[None, :]
    inside = (column > row) & (column <= row + window)
    mask = inside.expand(count, window, 2 * window).clone()
    mask[0, :, :window] = False
    mask = mask.repeat(rows, 1, 1)[:, None]
    out = F.scaled_dot_product_attention(
        split(query).flatten(0, 1), with_previous(key), with_previous(value), attn_mask=mask, scale=scale
    )
    return out.view(rows, count, heads, window, width).transpose(1, 2).reshape(rows, heads, length, width)


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as transformers' attention interface asks, in chunks where the layer has a window shorter than the row."""
    del kwargs
    repeat = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeat, dim=1), value.repeat_interleave(repeat, dim=1)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    window = getattr(module, "sliding_window", None)
    length = query.shape[2]
    if window and length == key.shape[2] and length >= 3 * window and length % window == 0:
        out = chunked(query, key, value, window, scale)
    else:
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, scale=scale
        )
    return out.transpose(1, 2), None


def use_windowed(model: Any) -> None:
    """Switch `model` to this attention for training; rows must be whole, without a cache."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    model.config._attn_implementation = NAME
