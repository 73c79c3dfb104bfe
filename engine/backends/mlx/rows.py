"""How MLX stores rows of keys and values: codes, and growing arrays ``[1, heads, rows, head_dim]``.

And hidden states as bytes, in a dtype that the other side names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mlx.core as mx
import numpy as np

from engine.backends.lattices import Arithmetic
from engine.backends.mlx.page_index import INDEXES
from engine.backends.rows import ASKING_ROWS, CODES_PER_BYTE, Library, Rows
from engine.types import FLOAT8_MOST, FLOAT8_SCALE_BYTES


class Affine:
    """8- or 4-bit codes per value with a scale and an offset per group of ``group_size`` values of one row.

    A row is coded when it is appended, before anything attends to it, and never again: whether it came alone or in a
    block changes nothing, unless rounding in the projections moves a value across the border between two codes.
    """

    def __init__(self, bits: int, group_size: int) -> None:
        self.bits = bits
        self.group_size = group_size
        self._dtype = mx.float32

    def encode(self, rows: mx.array) -> tuple[mx.array, ...]:
        """Return codes (uint8, two in a byte at 4 bits), scales and offsets."""
        self._dtype = rows.dtype
        levels = (1 << self.bits) - 1
        grouped = rows.astype(mx.float32).reshape(*rows.shape[:-1], -1, self.group_size)
        low = mx.min(grouped, axis=-1)
        spread = (mx.max(grouped, axis=-1) - low) / levels
        # Codes are made with the scale as it will be read back, in the rows' own dtype.
        scale, low = mx.where(spread == 0, 1.0, spread).astype(rows.dtype), low.astype(rows.dtype)
        steps = (grouped - low.astype(mx.float32)[..., None]) / scale.astype(mx.float32)[..., None]
        codes = mx.clip(mx.round(steps), 0, levels).astype(mx.uint8).reshape(rows.shape)
        if CODES_PER_BYTE[self.bits] == 2:
            codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
        return codes, scale, low

    def decode(self, parts: tuple[mx.array, ...]) -> mx.array:
        """Return codes times scale plus offset."""
        codes, scale, low = parts
        if CODES_PER_BYTE[self.bits] == 2:
            codes = _interleaved(codes & 15, codes >> 4)
        grouped = codes.astype(mx.float32).reshape(*scale.shape, self.group_size)
        rows = grouped * scale.astype(mx.float32)[..., None] + low.astype(mx.float32)[..., None]
        return rows.reshape(codes.shape).astype(self._dtype)


def squared(rows: mx.array, other: mx.array | None) -> float:
    """Return the sum of squares of ``rows``, less ``other`` where there is one."""
    wide = rows.astype(mx.float32)
    total: Any = mx.sum(mx.square(wide if other is None else wide - other.astype(mx.float32))).item()
    return float(total)


def _grown(old: mx.array | None, like: mx.array, begin: int, end: int, capacity: int) -> mx.array:
    """Return a zeroed buffer of ``capacity`` rows that starts with rows [begin, end) of ``old``."""
    shape = [*like.shape[:2], capacity - (end - begin), like.shape[3]]
    room = mx.zeros(shape, like.dtype)
    return room if old is None or end == begin else mx.concatenate([old[..., begin:end, :], room], axis=2)


def _interleaved(one: mx.array, other: mx.array) -> mx.array:
    return mx.stack([one, other], axis=-1).flatten(-2)


def _joined(arrays: list[mx.array]) -> mx.array:
    return mx.concatenate(arrays, axis=2)


def _size(array: mx.array) -> int:
    return int(array.nbytes)


def _packed(keys: mx.array, values: mx.array) -> bytes:
    return np.asarray(mx.contiguous(mx.stack([keys, values])).view(mx.uint8)).tobytes()


def _unpacked(page: bytearray, shape: tuple[int, ...], like: mx.array) -> Rows:
    # A copy: the next page comes into the same buffer.
    both = mx.array(np.frombuffer(page, np.uint8)).view(like.dtype).reshape(2, *shape)
    return both[0], both[1]


def packed_features(features_NF: mx.array, dtype: mx.Dtype) -> bytes:
    """Return the bits of ``[rows, width]`` features in a dtype, row by row."""
    return np.asarray(mx.contiguous(features_NF.astype(dtype)).view(mx.uint8)).tobytes()


def unpacked_features(data: bytearray, shape: tuple[int, int], dtype: mx.Dtype) -> mx.array:
    """Return features of such bits."""
    return mx.array(np.frombuffer(data, np.uint8)).view(dtype).reshape(shape)


def packed_float8(features_NF: mx.array) -> bytes:
    """Return each row's scale and its numbers in a byte each."""
    wide_NF = features_NF.astype(mx.float32)
    scale_N1 = mx.max(mx.abs(wide_NF), axis=-1, keepdims=True) / FLOAT8_MOST
    scale_N1 = mx.where(scale_N1 > 0, scale_N1, 1.0)
    return np.asarray(mx.concatenate([scale_N1.view(mx.uint8), mx.to_fp8(wide_NF / scale_N1)], axis=-1)).tobytes()


def unpacked_float8(data: bytearray, shape: tuple[int, int]) -> mx.array:
    """Return float32 features of such rows."""
    rows = mx.array(np.frombuffer(data, np.uint8)).reshape(shape[0], FLOAT8_SCALE_BYTES + shape[1])
    scale_N1 = mx.contiguous(rows[:, :FLOAT8_SCALE_BYTES]).view(mx.float32)
    return mx.from_fp8(rows[:, FLOAT8_SCALE_BYTES:], mx.float32) * scale_N1


def _unified(array: mx.array) -> bool:
    del array
    return True


def _attended(
    queries: mx.array, start: int, chunks: Iterable[tuple[mx.array, mx.array, int]], scale: float
) -> tuple[mx.array, mx.array]:
    """Return softmax attention over chunks of which each is seen once, in float32, and what share each chunk got."""
    _, heads, rows, head_dim = queries.shape
    weights: list[mx.array] = []
    positions, most, weight, total = mx.arange(start, start + rows)[:, None], None, mx.array(0.0), mx.array(0.0)
    for keys, values, first in chunks:
        key_heads, count = keys.shape[1], keys.shape[2]
        grouped = queries.astype(mx.float32).reshape(1, key_heads, heads // key_heads, rows, head_dim)
        scores = grouped @ keys.astype(mx.float32)[:, :, None].swapaxes(-1, -2) * scale
        if first + count - 1 > start:
            scores = mx.where(mx.arange(first, first + count) > positions, -mx.inf, scores)
        highest = mx.max(scores, axis=-1, keepdims=True)
        above = highest if most is None else mx.maximum(most, highest)
        shrunk = mx.zeros_like(above) if most is None else mx.exp(most - above)
        shares = mx.exp(scores - above)
        added = mx.sum(shares, axis=-1, keepdims=True)
        # A slice that is not copied would keep the rows of a whole chunk of the prompt alive.
        newest = above[:, :, :, -ASKING_ROWS:] + mx.log(added[:, :, :, -ASKING_ROWS:])
        weights.append(mx.contiguous(newest))
        weight = weight * shrunk + added
        total, most = total * shrunk + shares @ values.astype(mx.float32)[:, :, None], above
        # A chunk is let go before the next comes.
        mx.eval(weight, total, most, weights[-1])
    asked = mx.concatenate(weights, axis=-1)
    mass = mx.max(mx.exp(asked - mx.logsumexp(asked, axis=-1, keepdims=True)), axis=(0, 1, 2, 3))
    # Left for later it would hold a row of weights a page until the next block, and grow with the context.
    mx.eval(mass)
    return (total / weight).reshape(1, heads, rows, head_dim).astype(queries.dtype), mass


def _alone(attended: mx.array, key_heads: int) -> Rows:
    _, heads, rows, head_dim = attended.shape
    grouped = attended.reshape(1, key_heads, heads // key_heads, rows, head_dim).swapaxes(2, 3)
    values = grouped.reshape(1, key_heads, -1, head_dim)
    return mx.zeros_like(values), values


LIBRARY = Library(
    grown=_grown,
    joined=_joined,
    size=_size,
    affine=Affine,
    arithmetic=Arithmetic(
        cast=lambda rows, dtype: rows.astype(dtype),
        single=mx.float32,
        byte=mx.uint8,
        spacing=lambda dtype: float(mx.finfo(dtype).eps),
        ordered=lambda rows: mx.sort(rows, axis=-1),
        places=lambda count, _: mx.arange(count),
        interleaved=_interleaved,
    ),
    packed=_packed,
    unpacked=_unpacked,
    unified=_unified,
    attended=_attended,
    settled=mx.eval,
    alone=_alone,
    indexes=INDEXES,
)
