"""How torch stores rows of keys and values: codes, and growing tensors ``[1, heads, rows, head_dim]``.

And hidden states as bytes, in a dtype that the other side names.

Writes go into a buffer in place: whatever an earlier forward still reads has been queued on the same stream before.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.backends.lattices import Arithmetic
from engine.backends.rows import ASKING_ROWS, CODES_PER_BYTE, Library, Rows
from engine.backends.torch.page_index import INDEXES
from engine.types import FLOAT8_MOST, FLOAT8_SCALE_BYTES


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
            codes = _interleaved(codes & 15, codes >> 4)
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


def _interleaved(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.stack([one, other], dim=-1).flatten(-2)


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(tensors, dim=2)


def _size(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def _packed(keys: torch.Tensor, values: torch.Tensor) -> bytes:
    return bytes(torch.stack([keys, values]).contiguous().view(torch.uint8).cpu().numpy().tobytes())


def _unpacked(page: bytearray, shape: tuple[int, ...], like: torch.Tensor) -> Rows:
    keys, values = torch.frombuffer(page, dtype=torch.uint8).view(like.dtype).view(2, *shape).to(like.device)
    return keys, values


def packed_features(features_NF: torch.Tensor, dtype: torch.dtype) -> bytes:
    """Return the bits of ``[rows, width]`` features in a dtype, row by row."""
    return bytes(features_NF.to(dtype).contiguous().view(torch.uint8).cpu().numpy().tobytes())


def unpacked_features(
    data: bytearray, shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return features of such bits."""
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).view(shape).to(device)


def packed_float8(features_NF: torch.Tensor) -> bytes:
    """Return each row's scale and its numbers in a byte each."""
    wide_NF = features_NF.float()
    scale_N1 = wide_NF.abs().amax(dim=-1, keepdim=True) / FLOAT8_MOST
    scale_N1 = torch.where(scale_N1 > 0, scale_N1, 1.0)
    codes = (wide_NF / scale_N1).to(torch.float8_e4m3fn)
    parts = [part.contiguous().view(torch.uint8) for part in (scale_N1, codes)]
    return bytes(torch.cat(parts, dim=-1).cpu().numpy().tobytes())


def unpacked_float8(data: bytearray, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """Return float32 features of such rows."""
    rows = torch.frombuffer(data, dtype=torch.uint8).view(shape[0], FLOAT8_SCALE_BYTES + shape[1]).to(device)
    scale_N1 = rows[:, :FLOAT8_SCALE_BYTES].contiguous().view(torch.float32)
    return rows[:, FLOAT8_SCALE_BYTES:].contiguous().view(torch.float8_e4m3fn).float() * scale_N1


def _unified(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _attended(
    queries: torch.Tensor, start: int, chunks: Iterable[tuple[torch.Tensor, torch.Tensor, int]], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax attention over chunks of which each is seen once, in float32, and what share each chunk got."""
    device, most, weight, total = queries.device, None, torch.tensor(0.0), torch.tensor(0.0)
    weights: list[torch.Tensor] = []
    positions = torch.arange(start, start + queries.shape[2], device=device)[:, None]
    for keys, values, first in chunks:
        group, count = queries.shape[1] // keys.shape[1], keys.shape[2]
        seen, brought = (side.float().repeat_interleave(group, dim=1) for side in (keys, values))
        scores = queries.float() @ seen.transpose(2, 3) * scale
        if first + count - 1 > start:
            scores.masked_fill_(torch.arange(first, first + count, device=device) > positions, float("-inf"))
        highest = scores.amax(dim=-1, keepdim=True)
        above = highest if most is None else torch.maximum(most, highest)
        shrunk = torch.zeros_like(above) if most is None else (most - above).exp()
        shares = (scores - above).exp()
        added = shares.sum(dim=-1, keepdim=True)
        weights.append((above + added.log())[:, :, -ASKING_ROWS:])
        weight, total, most = weight * shrunk + added, total * shrunk + shares @ brought, above
    asked = torch.cat(weights, dim=-1)
    mass = (asked - asked.logsumexp(dim=-1, keepdim=True)).exp().amax(dim=(0, 1, 2))
    return (total / weight).to(queries.dtype), mass


def _alone(attended: torch.Tensor, key_heads: int) -> Rows:
    values = attended.unflatten(1, (key_heads, -1)).transpose(2, 3).flatten(2, 3)
    return torch.zeros_like(values), values


LIBRARY = Library(
    grown=_grown,
    joined=_joined,
    size=_size,
    affine=Affine,
    arithmetic=Arithmetic(
        cast=lambda rows, dtype: rows.to(dtype),
        single=torch.float32,
        byte=torch.uint8,
        spacing=lambda dtype: torch.finfo(dtype).eps,
        ordered=lambda rows: rows.sort(dim=-1).values,
        places=lambda count, like: torch.arange(count, device=like.device),
        interleaved=_interleaved,
    ),
    packed=_packed,
    unpacked=_unpacked,
    unified=_unified,
    attended=_attended,
    settled=lambda _: None,
    alone=_alone,
    indexes=INDEXES,
    doubles=True,
)
