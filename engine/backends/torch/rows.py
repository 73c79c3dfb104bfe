"""How torch stores rows of keys and values: affine codes, and growing tensors ``[1, heads, rows, head_dim]``.

Writes go into a buffer in place: whatever an earlier forward still reads has been queued on the same stream before.
"""

from __future__ import annotations

import torch

from engine.backends.rows import CODES_PER_BYTE, Library


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


def squared(rows: torch.Tensor, other: torch.Tensor | None) -> float:
    """Return the sum of squares of ``rows``, less ``other`` where there is one."""
    wide = rows.double()
    return float((wide if other is None else wide - other.double()).square().sum().item())


def _grown(old: torch.Tensor | None, like: torch.Tensor, begin: int, end: int, capacity: int) -> torch.Tensor:
    """Return a buffer of ``capacity`` rows that starts with rows [begin, end) of ``old``."""
    room = like.new_zeros((like.shape[0], like.shape[1], capacity, like.shape[3]))
    if old is not None and end > begin:
        room[:, :, : end - begin] = old[:, :, begin:end]
    return room


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(tensors, dim=2)


def _size(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


LIBRARY = Library(grown=_grown, joined=_joined, size=_size, affine=Affine)
