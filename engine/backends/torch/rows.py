"""Rows of keys and values in buffers on torch, plain or as affine codes. Tensors are ``[1, heads, rows, head_dim]``.

Writes go into a buffer in place: whatever an earlier forward still reads has been queued on the same stream before.
"""

from __future__ import annotations

from typing import Protocol

import torch

from engine.types import CacheLayout, StoredError

CODES_PER_BYTE = {8: 1, 4: 2}


class Codec(Protocol):
    """How a row is stored. Rows are independent of each other, so a crop is exact in every codec."""

    def encode(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors to store; each has the axes ``[1, heads, rows, …]``."""

    def decode(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the rows that attention sees."""


class Plain:
    """Rows as they are."""

    def encode(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the rows."""
        return (rows,)

    def decode(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
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
        self._dtype = torch.float32

    def encode(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return codes (uint8, two in a byte at 4 bits), scales and offsets."""
        self._dtype = rows.dtype
        levels = (1 << self.bits) - 1
        grouped = rows.float().unflatten(-1, (-1, self.group_size))
        low = grouped.amin(dim=-1)
        spread = (grouped.amax(dim=-1) - low) / levels
        # Codes are made with the scale as it will be read back, in the rows' own dtype.
        scale, low = spread.masked_fill(spread == 0, 1.0).to(rows.dtype), low.to(rows.dtype)
        steps = (grouped - low.float()[..., None]) / scale.float()[..., None]
        codes = steps.round().clamp(0, levels).to(torch.uint8).flatten(-2)
        if CODES_PER_BYTE[self.bits] == 2:
            codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
        return codes, scale, low

    def decode(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return codes times scale plus offset."""
        codes, scale, low = parts
        if CODES_PER_BYTE[self.bits] == 2:
            codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
        grouped = codes.float().unflatten(-1, (-1, self.group_size))
        return (grouped * scale.float()[..., None] + low.float()[..., None]).flatten(-2).to(self._dtype)


class RowStore:
    """One buffer of keys and one of values, each in the parts of a codec."""

    def __init__(self, codec: Codec | None = None) -> None:
        self._codec: Codec = codec or Plain()
        self._parts: list[torch.Tensor] = []

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return int(self._parts[0].shape[2]) if self._parts else 0

    def encode(self, keys: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
        """Return what ``move`` and ``write`` take."""
        return [*self._codec.encode(keys), *self._codec.encode(values)]

    def move(self, like: list[torch.Tensor], begin: int, end: int, capacity: int) -> None:
        """Go on with new buffers of ``capacity`` rows that start with the present rows [begin, end)."""
        old = self._parts or [None] * len(like)
        self._parts = [_moved(was, part, begin, end, capacity) for was, part in zip(old, like, strict=True)]

    def write(self, parts: list[torch.Tensor], begin: int) -> None:
        """Write encoded rows from ``begin`` on."""
        for buffer, part in zip(self._parts, parts, strict=True):
            buffer[:, :, begin : begin + part.shape[2]] = part

    def rows(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of rows [begin, end): views of the buffers where rows are stored as they are."""
        shown = tuple(buffer[:, :, begin:end] for buffer in self._parts)
        half = len(shown) // 2
        return self._codec.decode(shown[:half]), self._codec.decode(shown[half:])

    def measured_bytes(self) -> int:
        """Return the bytes of the storages behind all buffers."""
        return sum(buffer.untyped_storage().nbytes() for buffer in self._parts)


def codec_of(layout: CacheLayout, head_dim: int) -> Codec:
    """Return how ``layout`` stores the rows of heads of ``head_dim`` values."""
    return Plain() if layout.bits is None else Affine(layout.bits, layout.group_of(head_dim))


@torch.inference_mode()
def stored_errors(layer: int, rows: tuple[torch.Tensor, torch.Tensor], layout: CacheLayout) -> tuple[StoredError, ...]:
    """Return what storing one layer's keys and values ``[1, heads, rows, head_dim]`` in ``layout`` changes."""
    found = []
    for side, exact in zip(("keys", "values"), rows, strict=True):
        codec = codec_of(layout, exact.shape[-1])
        parts = codec.encode(exact)
        wide = exact.double()
        lost = float((codec.decode(parts).double() - wide).square().sum().item())
        bits = 8.0 * sum(part.numel() * part.element_size() for part in parts) / exact.numel()
        found.append(StoredError(layer, side, exact.numel(), bits, lost, float(wide.square().sum().item())))
    return tuple(found)


def _moved(old: torch.Tensor | None, like: torch.Tensor, begin: int, end: int, capacity: int) -> torch.Tensor:
    """Return a buffer of ``capacity`` rows that starts with rows [begin, end) of ``old``."""
    room = like.new_zeros((like.shape[0], like.shape[1], capacity, like.shape[3]))
    if old is not None and end > begin:
        room[:, :, : end - begin] = old[:, :, begin:end]
    return room
