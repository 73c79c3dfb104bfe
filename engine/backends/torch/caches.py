"""Key and value caches of one layer on torch, croppable to an absolute length.

They keep their rows in temporal order, so a crop is arithmetic on lengths and never moves a row. Tensors are
``[1, heads, rows, head_dim]`` in the target's dtype. Writes go into a buffer in place: whatever an earlier forward
still reads has been queued on the same stream before.
"""

from __future__ import annotations

import torch

from engine.errors import CacheCropError
from engine.types import CacheLayout

GROW_ROWS = 64
"""How many rows a full cache grows by."""


class _Buffer:
    """A pair of tensors that rows are written into."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return 0 if self.keys is None else int(self.keys.shape[2])

    def move(self, keys: torch.Tensor, values: torch.Tensor, begin: int, end: int, capacity: int) -> None:
        """Go on with new tensors of ``capacity`` rows that start with the present rows [begin, end)."""
        self.keys = _moved(self.keys, keys, begin, end, capacity)
        self.values = _moved(self.values, values, begin, end, capacity)

    def write(self, keys: torch.Tensor, values: torch.Tensor, begin: int) -> None:
        """Write rows from ``begin`` on."""
        if self.keys is None or self.values is None:
            raise CacheCropError("rows were written before the buffer had room; this is a defect of the cache")
        end = begin + keys.shape[2]
        self.keys[:, :, begin:end] = keys
        self.values[:, :, begin:end] = values

    def rows(self, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of rows [begin, end)."""
        if self.keys is None or self.values is None:
            raise CacheCropError("rows were read from an empty buffer; this is a defect of the cache")
        return self.keys[:, :, begin:end], self.values[:, :, begin:end]

    def measured_bytes(self) -> int:
        """Return the bytes of the storages behind both tensors."""
        return sum(tensor.untyped_storage().nbytes() for tensor in (self.keys, self.values) if tensor is not None)


class FullCache:
    """Every row is kept; with a ``window`` the attention still sees only the rows it may."""

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self._length = 0
        self._buffer = _Buffer()

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self._length

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append rows and return those the new queries may attend to, oldest first."""
        begin, end = self._length, self._length + keys.shape[2]
        if end > self._buffer.capacity:
            self._buffer.move(keys, values, 0, begin, -(-end // GROW_ROWS) * GROW_ROWS)
        self._buffer.write(keys, values, begin)
        self._length = end
        first = 0 if self.window is None else max(0, begin - self.window + 1)
        return self._buffer.rows(first, end)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``; any earlier length is exact because every row is kept.

        Raises:
            CacheCropError: If ``length`` is negative or beyond what was seen.
        """
        if not 0 <= length <= self._length:
            raise CacheCropError(f"crop to {length} positions; expected 0 <= length <= {self._length}")
        self._length = length

    def measured_bytes(self) -> int:
        """Return the bytes of both buffers."""
        return self._buffer.measured_bytes()


class WindowCache:
    """A sliding layer: the rows its newest append could see, that append, and a little slack.

    Physical row r holds position ``_base + r``. Rows leave only when an append finds no room, and never one that the
    append itself may attend to, so a crop to its start or later needs no row that is gone.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.slack_rows = max(16, window // 16)
        self._length = 0
        self._base = 0
        self._floor = 0
        self._buffer = _Buffer()

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._length

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append rows and return the last ``window - 1`` earlier rows with them, oldest first."""
        rows = keys.shape[2]
        begin, end = self._length, self._length + rows
        shown = self.room(rows, keys, values)
        self._buffer.write(keys, values, begin - self._base)
        self._floor, self._length = begin, end
        return shown

    def room(self, rows: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of the rows an append of ``rows`` could see, ending in ``rows`` free ones.

        Whatever is written into the free rows without an append is not counted and is overwritten later. ``keys`` and
        ``values`` only tell the shape and dtype of a row.
        """
        begin, end = self._length, self._length + rows
        first = max(0, begin - self.window + 1)
        # A long prefill chunk leaves a large buffer behind; the first short append returns to window + slack.
        oversized = rows <= self.slack_rows and self._buffer.capacity > self.window + 2 * self.slack_rows
        if oversized or end - self._base > self._buffer.capacity:
            capacity = end - first + (self.slack_rows if rows <= self.slack_rows else 0)
            self._buffer.move(keys, values, first - self._base, begin - self._base, capacity)
            self._base = first
        return self._buffer.rows(first - self._base, end - self._base)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``.

        Raises:
            CacheCropError: If ``length`` lies before the start of the last append, or beyond what was seen.
        """
        if not self._floor <= length <= self._length:
            raise CacheCropError(
                f"crop of a sliding cache to {length} positions; expected {self._floor} <= length <= {self._length}: "
                "rows older than the last append are gone"
            )
        self._length = length

    def measured_bytes(self) -> int:
        """Return the bytes of both buffers."""
        return self._buffer.measured_bytes()


LayerCache = FullCache | WindowCache


class LayerCaches:
    """The caches of a sequence in the shape transformers' attention modules call: ``update(keys, values, layer)``."""

    def __init__(self, windows: tuple[int | None, ...], layout: CacheLayout) -> None:
        self.layers = tuple(make_cache(window, layout) for window in windows)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one layer's rows and return the rows its queries may attend to."""
        return self.layers[layer_idx].append(keys, values)

    def crop(self, length: int) -> None:
        """Crop every layer."""
        for layer in self.layers:
            layer.crop(length)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(layer.measured_bytes() for layer in self.layers)


def make_cache(window: int | None, layout: CacheLayout) -> LayerCache:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    if window is not None and layout is CacheLayout.NATIVE:
        return WindowCache(window)
    return FullCache(window)


def attention_mask(rows: int, offset: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """Return the mask of ``rows`` queries from ``offset`` on over the keys a cache returned for them.

    Returns:
        bool ``[1, 1, rows, keys]``, True where a query may attend, or None where torch needs none: one query sees every
        key it is given, and a first chunk within the window is plainly causal (torch aligns that at the start, so a
        chunk after other rows always carries its mask).
    """
    if rows == 1:
        return None
    shown = offset if window is None else min(offset, window - 1)
    bounded = window is not None and shown + rows > window
    if shown == 0 and not bounded:
        return None
    mask = torch.ones(rows, shown + rows, dtype=torch.bool, device=device).tril_(shown)
    if bounded and window is not None:
        mask.triu_(shown - window + 1)
    return mask[None, None]


def _moved(old: torch.Tensor | None, like: torch.Tensor, begin: int, end: int, capacity: int) -> torch.Tensor:
    """Return a buffer of ``capacity`` rows that starts with rows [begin, end) of ``old``."""
    room = like.new_zeros((like.shape[0], like.shape[1], capacity, like.shape[3]))
    if old is not None and end > begin:
        room[:, :, : end - begin] = old[:, :, begin:end]
    return room
