"""What MLX remembers the keys of evicted pages by: 2-bit codes of each.

Shapes: G key heads, R rows of queries of all heads that share a key head, S remembered rows, P pages, E values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from engine.backends.rotation import rotation
from engine.backends.rows import ASKING_ROWS, PageIndex


class KeyCodes:
    """Each key rotated, in codes of 2 bits with one scale in the dtype of the keys."""

    def encode(self, keys: mx.array) -> tuple[mx.array, ...]:
        """Return codes, four in a byte ``[1, G, rows, E / 4]``, and scales ``[1, G, rows, 1]``."""
        turned = keys.astype(mx.float32) @ _rotation(keys.shape[-1])
        scale = mx.max(mx.abs(turned), axis=-1, keepdims=True) / 1.5
        scale = mx.where(scale == 0, 1.0, scale).astype(keys.dtype)
        codes = (mx.clip(mx.round(turned / scale.astype(mx.float32) - 0.5), -2, 1) + 2).astype(mx.uint8)
        return codes[..., 0::4] | codes[..., 1::4] << 2 | codes[..., 2::4] << 4 | codes[..., 3::4] << 6, scale

    def mass(
        self, queries: mx.array, parts: Sequence[mx.array], held: mx.array, pages: int, scale: float
    ) -> Sequence[float]:
        """Return by page the largest share of attention by the keys as coded."""
        packed, steps = parts
        asking = _asking(queries, held)
        codes = mx.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1).flatten(-2)
        coded = (codes.astype(mx.float32) - 1.5) * steps.astype(mx.float32)
        scores = asking @ _rotation(queries.shape[-1]) @ coded.swapaxes(2, 3) * scale
        return _shares(mx.logsumexp(scores.reshape(*scores.shape[:3], pages, -1), axis=-1), asking, held, scale)


def _rotation(head_dim: int) -> mx.array:
    return mx.array(rotation(head_dim))


def _asking(queries: mx.array, held: mx.array) -> mx.array:
    """Return the newest queries by the key head they look at, ``[1, G, R, E]``."""
    newest = queries[:, :, -ASKING_ROWS:].astype(mx.float32)
    return newest.reshape(1, held.shape[1], -1, queries.shape[-1])


def _shares(pages: mx.array, asking: mx.array, held: mx.array, scale: float) -> Sequence[float]:
    """Return by page the largest share of attention, of scores ``[1, G, R, P]`` summed over the rows of each."""
    scores = asking @ held.astype(mx.float32).swapaxes(2, 3) * scale
    total = mx.logsumexp(pages, axis=-1, keepdims=True)
    if held.shape[2]:  # of no rows in memory MLX computes no sum; a window of 1 may have none
        total = mx.logaddexp(total, mx.logsumexp(scores, axis=-1, keepdims=True))
    found: Any = mx.max(mx.exp(pages - total), axis=(0, 1, 2)).tolist()
    return list(found)


INDEXES: Mapping[str, PageIndex] = {"codes": KeyCodes()}
