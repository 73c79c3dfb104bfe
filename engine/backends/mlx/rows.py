"""Rows of keys and values in buffers on MLX, plain or as affine codes. Arrays are ``[1, heads, rows, head_dim]``."""

from __future__ import annotations

from typing import Any, Protocol

import mlx.core as mx

from engine.types import CacheLayout, StoredError

CODES_PER_BYTE = {8: 1, 4: 2}


class Codec(Protocol):
    """How a row is stored. Rows are independent of each other, so a crop is exact in every codec."""

    def encode(self, rows: mx.array) -> tuple[mx.array, ...]:
        """Return the arrays to store; each has the axes ``[1, heads, rows, …]``."""

    def decode(self, parts: tuple[mx.array, ...]) -> mx.array:
        """Return the rows that attention sees."""


class Plain:
    """Rows as they are."""

    def encode(self, rows: mx.array) -> tuple[mx.array, ...]:
        """Return the rows."""
        return (rows,)

    def decode(self, parts: tuple[mx.array, ...]) -> mx.array:
        """Return the rows."""
        return parts[0]


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
            codes = mx.stack([codes & 15, codes >> 4], axis=-1).flatten(-2)
        grouped = codes.astype(mx.float32).reshape(*scale.shape, self.group_size)
        rows = grouped * scale.astype(mx.float32)[..., None] + low.astype(mx.float32)[..., None]
        return rows.reshape(codes.shape).astype(self._dtype)


class RowStore:
    """One buffer of keys and one of values, each in the parts of a codec."""

    def __init__(self, codec: Codec | None = None) -> None:
        self._codec: Codec = codec or Plain()
        self._parts: list[mx.array] = []

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return int(self._parts[0].shape[2]) if self._parts else 0

    def encode(self, keys: mx.array, values: mx.array) -> list[mx.array]:
        """Return what ``move`` and ``write`` take."""
        return [*self._codec.encode(keys), *self._codec.encode(values)]

    def move(self, like: list[mx.array], begin: int, end: int, capacity: int) -> None:
        """Go on with new buffers of ``capacity`` rows that start with the present rows [begin, end)."""
        old: list[Any] = self._parts or [None] * len(like)
        self._parts = [_grown(was, part, begin, end, capacity) for was, part in zip(old, like, strict=True)]

    def write(self, parts: list[mx.array], begin: int) -> None:
        """Write encoded rows from ``begin`` on."""
        for buffer, part in zip(self._parts, parts, strict=True):
            buffer[..., begin : begin + part.shape[2], :] = part

    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array]:
        """Return keys and values of rows [begin, end)."""
        shown = tuple(buffer[..., begin:end, :] for buffer in self._parts)
        half = len(shown) // 2
        return self._codec.decode(shown[:half]), self._codec.decode(shown[half:])

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(int(buffer.nbytes) for buffer in self._parts)

    def buffers(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        return list(self._parts)


def codec_of(layout: CacheLayout, head_dim: int) -> Codec:
    """Return how ``layout`` stores the rows of heads of ``head_dim`` values."""
    return Plain() if layout.bits is None else Affine(layout.bits, layout.group_of(head_dim))


def stored_errors(layer: int, rows: tuple[mx.array, mx.array], layout: CacheLayout) -> tuple[StoredError, ...]:
    """Return what storing one layer's keys and values ``[1, heads, rows, head_dim]`` in ``layout`` changes."""
    found = []
    for side, exact in zip(("keys", "values"), rows, strict=True):
        codec = codec_of(layout, exact.shape[-1])
        parts = codec.encode(exact)
        wide = exact.astype(mx.float32)
        lost: Any = mx.sum(mx.square(codec.decode(parts).astype(mx.float32) - wide)).item()
        whole: Any = mx.sum(mx.square(wide)).item()
        bits = 8.0 * sum(int(part.nbytes) for part in parts) / exact.size
        found.append(StoredError(layer, side, int(exact.size), bits, float(lost), float(whole)))
    return tuple(found)


def _grown(old: mx.array | None, like: mx.array, begin: int, end: int, capacity: int) -> mx.array:
    """Return a zeroed buffer of ``capacity`` rows that starts with rows [begin, end) of ``old``."""
    shape = [*like.shape[:2], capacity - (end - begin), like.shape[3]]
    room = mx.zeros(shape, like.dtype)
    return room if old is None or end == begin else mx.concatenate([old[..., begin:end, :], room], axis=2)
