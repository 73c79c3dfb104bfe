"""Caches at fixed addresses, so that one recorded forward can be replayed at every position.

Buffers never move or grow. The position is a number on the device; rows are written by index; attention reads a whole
buffer under a mask computed from the position. Every forward writes a full block, its own rows and then zeros, so that
nothing a rejected row left behind, NaN included, is ever multiplied by a masked weight. A recurrent layer's state is
copied into its place, and a crop takes it back on the device.

Knows nothing about recording or who borrows the buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.backends.evicting import EvictingRows
from engine.backends.rows import Rows
from engine.backends.torch.caches import Held, HeldRows
from engine.backends.torch.models.delta_net import FixedState
from engine.errors import CacheCropError

ALIGNED_ROWS = 16
"""Buffers hold a multiple of this many rows: attention kernels want aligned masks."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a buffer is used: position p lives in row p, or on a ``ring`` in row p modulo ``rows``."""

    rows: int
    window: int | None
    ring: bool

    @classmethod
    def of(cls, held: HeldRows, capacity: int, block_rows: int) -> Shape:
        """Return the shape for a layer.

        On a ring the newest block, accepted or not, may overwrite only what no later query can see: that takes the
        window and one block less a row.
        """
        if held.window is None or held.every_row:
            return cls(_aligned(capacity), held.window, ring=False)
        return cls(_aligned(held.window + block_rows - 1), held.window, ring=True)


class StaticRows:
    """The buffers of one layer."""

    def __init__(self, shape: Shape, like: HeldRows) -> None:
        self.shape = shape
        self.keys, self.values = (
            side.new_zeros((1, side.shape[1], shape.rows, side.shape[3])) for side in (like.keys, like.values)
        )

    def write(self, keys: torch.Tensor, values: torch.Tensor, places: torch.Tensor) -> Rows:
        """Write rows, and zeros into the places left over; return both buffers whole."""
        rest = (0, 0, 0, places.shape[0] - keys.shape[2])
        self.keys.index_copy_(2, places, functional.pad(keys, rest))
        self.values.index_copy_(2, places, functional.pad(values, rest))
        return self.keys, self.values

    def load(self, held: HeldRows, length: int) -> None:
        """Replace everything by the rows of ``held`` that a query from ``length`` on may see."""
        first = held.first
        if self.shape.ring and self.shape.window is not None:
            first = max(first, length - self.shape.window + 1)
        places = self._places(first, length)
        for buffer, rows in ((self.keys, held.keys), (self.values, held.values)):
            buffer.zero_()
            buffer.index_copy_(2, places, rows[:, :, first - held.first : length - held.first])

    def held(self, first: int, length: int) -> HeldRows:
        """Return a copy of the rows [first, length)."""
        places, shape = self._places(first, length), self.shape
        keys, values = self.keys.index_select(2, places), self.values.index_select(2, places)
        return HeldRows(shape.window, not shape.ring, first, keys, values)

    def _places(self, first: int, end: int) -> torch.Tensor:
        places = torch.arange(first, end, device=self.keys.device)
        return places % self.shape.rows if self.shape.ring else places


class StaticCaches:
    """All layers of one sequence at a time, in the shape transformers' attention modules call.

    ``begin``, ``masks``, ``update`` and ``take_back`` are what a recording sees: they read device tensors only. The
    rest is host arithmetic around it.
    """

    def __init__(
        self,
        like: Mapping[int, HeldRows],
        capacity: int,
        block_rows: int,
        states: Mapping[int, FixedState] | None = None,
    ) -> None:
        device = next(iter(like.values())).keys.device
        self.capacity, self.block_rows = capacity, block_rows
        self.layers = {index: StaticRows(Shape.of(held, capacity, block_rows), held) for index, held in like.items()}
        self._shapes = {layer.shape for layer in self.layers.values()}
        self._ring_reach = max((shape.window or 1 for shape in self._shapes if shape.ring), default=None)
        self._position, self._kept = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self._steps = torch.arange(block_rows, device=device)
        self._numbers = torch.arange(max(shape.rows for shape in self._shapes), device=device)
        self._places: dict[Shape, torch.Tensor] = {}
        self._queries = self._steps
        self._length = self._floor = self._written = 0
        self.states = dict(states or {})
        self.asked: dict[int, EvictingRows] = {}
        """None: reading pages is no part of a recording."""

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._length

    def begin(self, rows: int) -> torch.Tensor:
        """Derive from the position where the next block goes; return the positions of its rows, int64 ``[rows]``."""
        block = self._position + self._steps
        self._places = {shape: block % shape.rows if shape.ring else block for shape in self._shapes}
        self._queries = block[:rows]
        return self._queries

    def masks(self, rows: int, device: torch.device) -> dict[int, torch.Tensor | None]:
        """Return by layer which rows of its buffers each query sees, bool ``[1, 1, rows, buffer rows]``."""
        del rows, device
        made = {shape: self.mask(shape) for shape in self._shapes}
        return {index: made[layer.shape] for index, layer in self.layers.items()}

    def mask(self, shape: Shape) -> torch.Tensor:
        """Return which rows of a buffer each query sees."""
        queries = self._queries[:, None]
        held = self._numbers[: shape.rows]
        if shape.ring:
            # A ring's row holds the newest position that falls on it; one not reached yet comes out negative.
            newest = self._queries[-1:]
            held = newest - (newest - held) % shape.rows
        seen = (held <= queries) & (held >= 0)
        if shape.window is not None:
            seen &= queries - held < shape.window
        return seen[None, None]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one layer's rows and return its buffers."""
        layer = self.layers[layer_idx]
        return layer.write(keys, values, self._places[layer.shape])

    @torch.inference_mode()
    def stand_at(self, rows: int) -> int:
        """Move the device's position to the length for a forward of ``rows``, count them, return where they start."""
        start, zeroed = self._length, self._length + self.block_rows
        if self._written > zeroed:
            # A crop reached behind more than a block: the forward's own zeros would not cover what it dropped.
            for layer in self.layers.values():
                layer.keys[:, :, zeroed : self._written].zero_()
                layer.values[:, :, zeroed : self._written].zero_()
        self._position.fill_(start)
        self._floor, self._length = start, start + rows
        self._written = self._length
        return start

    @torch.inference_mode()
    def load(self, held: Held, length: int) -> None:
        """Replace every layer's rows or state; nothing of an earlier sequence stays."""
        for index, layer in self.layers.items():
            layer.load(held.rows[index], length)
        for index, state in self.states.items():
            state.load(held.states[index])
        self._length = self._floor = self._written = length

    @torch.inference_mode()
    def held(self) -> Held:
        """Return copies of what a crop to any allowed length may still need."""
        lowest = self._lowest()
        rows = {
            index: layer.held(max(0, lowest - (layer.shape.window or 1) + 1) if layer.shape.ring else 0, self._length)
            for index, layer in self.layers.items()
        }
        since = self._length - self._floor
        return Held(rows, {index: state.held(self._floor, since) for index, state in self.states.items()})

    @torch.inference_mode()
    def crop(self, length: int) -> None:
        """Forget positions >= ``length``.

        Raises:
            CacheCropError: If sliding rows or a state before the start of the last forward would be needed, or
                ``length`` is beyond what was seen.
        """
        if not self._lowest() <= length <= self._length:
            raise CacheCropError(
                f"crop of static caches to {length} positions; expected {self._lowest()} <= length <= {self._length}: "
                "sliding rows and states older than the last append are gone"
            )
        if self.states and length < self._length:
            self._kept.fill_(length - self._floor)
            self.take_back()
        self._length = length

    @torch.inference_mode()
    def take_back(self) -> None:
        """Make every state the one behind the rows of the last forward that are kept, whose number is on the device."""
        for state in self.states.values():
            state.take_back(self._kept)

    @property
    def floor(self) -> int:
        """The start of the last forward."""
        return self._floor

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        sides = [side for layer in self.layers.values() for side in (layer.keys, layer.values)]
        rows = sum(int(side.untyped_storage().nbytes()) for side in sides)
        return rows + sum(state.measured_bytes() for state in self.states.values())

    def _lowest(self) -> int:
        return 0 if self._ring_reach is None and not self.states else self._floor


def _aligned(rows: int) -> int:
    return -(-rows // ALIGNED_ROWS) * ALIGNED_ROWS
