"""Key and value caches of one layer on torch, croppable to an absolute length.

They keep their rows in temporal order, so a crop is arithmetic on lengths and never moves a row. Tensors are
``[1, heads, rows, head_dim]`` in the target's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.backends.torch.rows import Codec, RowStore, codec_of
from engine.errors import CacheCropError
from engine.types import CacheLayout

GROW_ROWS = 64
"""How many rows a full cache grows by."""

Rows = tuple[torch.Tensor, torch.Tensor]
"""Keys and values."""


class FullCache:
    """Every row is kept; with a ``window`` the attention still sees only the rows it may."""

    def __init__(self, window: int | None = None, codec: Codec | None = None) -> None:
        self.window = window
        self._length = 0
        self._store = RowStore(codec)

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self._length

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> Rows:
        """Append rows and return those the new queries may attend to, oldest first."""
        begin, end = self._length, self._length + keys.shape[2]
        parts = self._store.encode(keys, values)
        if end > self._store.capacity:
            self._store.move(parts, 0, begin, -(-end // GROW_ROWS) * GROW_ROWS)
        self._store.write(parts, begin)
        self._length = end
        first = 0 if self.window is None else max(0, begin - self.window + 1)
        return self._store.rows(first, end)

    def mask(self, rows: int, device: torch.device) -> torch.Tensor | None:
        """Return the mask over what the next append of ``rows`` will return."""
        return attention_mask(rows, self._length, self.window, device)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``; any earlier length is exact because every row is kept.

        Raises:
            CacheCropError: If ``length`` is negative or beyond what was seen.
        """
        if not 0 <= length <= self._length:
            raise CacheCropError(f"crop to {length} positions; expected 0 <= length <= {self._length}")
        self._length = length

    def held(self) -> Rows:
        """Return every row, for a study of what storing them otherwise would change."""
        return self._store.rows(0, self._length)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._store.measured_bytes()


class WindowCache:
    """A sliding layer: the rows its newest append could see, that append, and a little slack.

    Physical row r holds position ``_base + r``. Rows leave only when an append finds no room, and never one that the
    append itself may attend to, so a crop to its start or later needs no row that is gone.
    """

    def __init__(self, window: int, codec: Codec | None = None) -> None:
        self.window = window
        self.slack_rows = max(16, window // 16)
        self._length = 0
        self._base = 0
        self._floor = 0
        self._store = RowStore(codec)

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._length

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> Rows:
        """Append rows and return the last ``window - 1`` earlier rows with them, oldest first."""
        rows = keys.shape[2]
        begin, end = self._length, self._length + rows
        parts = self._store.encode(keys, values)
        first = self._make_room(rows, parts)
        self._store.write(parts, begin - self._base)
        self._floor, self._length = begin, end
        return self._store.rows(first, end - self._base)

    def room(self, rows: int, keys: torch.Tensor, values: torch.Tensor) -> Rows:
        """Return views of the rows an append of ``rows`` could see, ending in ``rows`` free ones.

        Whatever is written into the free rows without an append is not counted and is overwritten later. ``keys`` and
        ``values`` only tell the shape and dtype of a row, which must be stored as it is.
        """
        first = self._make_room(rows, self._store.encode(keys, values))
        return self._store.rows(first, self._length + rows - self._base)

    def _make_room(self, rows: int, like: list[torch.Tensor]) -> int:
        """Let ``rows`` more rows fit and return the physical row of the oldest one they may see."""
        begin, end = self._length, self._length + rows
        first = max(0, begin - self.window + 1)
        # A long prefill chunk leaves a large buffer behind; the first short append returns to window + slack.
        oversized = rows <= self.slack_rows and self._store.capacity > self.window + 2 * self.slack_rows
        if oversized or end - self._base > self._store.capacity:
            capacity = end - first + (self.slack_rows if rows <= self.slack_rows else 0)
            self._store.move(like, first - self._base, begin - self._base, capacity)
            self._base = first
        return first - self._base

    def mask(self, rows: int, device: torch.device) -> torch.Tensor | None:
        """Return the mask over what the next append of ``rows`` will return."""
        return attention_mask(rows, self._length, self.window, device)

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
        """Return the bytes of all buffers."""
        return self._store.measured_bytes()


class SinkWindowCache:
    """The first ``sink`` positions for ever, and a window of the newest: a full-attention layer in bounded memory.

    A query at position p sees the positions below ``sink`` and those after p - ``window``: a rule of positions alone,
    so a row in a block sees exactly what it would have seen decoded by itself. Rows keep their own rotary positions.
    """

    def __init__(self, sink: int, window: int) -> None:
        self.sink = sink
        self.window = window
        self._recent = WindowCache(window)
        self._first = RowStore()

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._recent.length

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> Rows:
        """Append rows and return the sink's rows that left the window, then the window's, oldest first."""
        begin = self.length
        if begin < self.sink:
            early = self._first.encode(keys[:, :, : self.sink - begin], values[:, :, : self.sink - begin])
            if self._first.capacity == 0:
                self._first.move(early, 0, 0, self.sink)
            self._first.write(early, begin)
        recent = self._recent.append(keys, values)
        shown = _sink_rows(begin, self.window, self.sink)
        if not shown:
            return recent
        sink_keys, sink_values = self._first.rows(0, shown)
        return torch.cat([sink_keys, recent[0]], dim=2), torch.cat([sink_values, recent[1]], dim=2)

    def mask(self, rows: int, device: torch.device) -> torch.Tensor | None:
        """Return the mask over what the next append of ``rows`` will return."""
        return attention_mask(rows, self.length, self.window, device, self.sink)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``.

        Raises:
            CacheCropError: If ``length`` lies before the start of the last append, or beyond what was seen.
        """
        self._recent.crop(length)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._first.measured_bytes() + self._recent.measured_bytes()


LayerCache = FullCache | WindowCache | SinkWindowCache


class LayerCaches:
    """The caches of a sequence in the shape transformers' attention modules call: ``update(keys, values, layer)``."""

    def __init__(self, windows: Sequence[int | None], head_dims: Sequence[int], layout: CacheLayout) -> None:
        sizes = zip(windows, head_dims, strict=True)
        self.layers = tuple(make_cache(window, layout, head_dim) for window, head_dim in sizes)

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: object, **__: object) -> Rows:
        """Append one layer's rows and return the rows its queries may attend to."""
        return self.layers[layer_idx].append(keys, values)

    def crop(self, length: int) -> None:
        """Crop every layer."""
        for layer in self.layers:
            layer.crop(length)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(layer.measured_bytes() for layer in self.layers)


def make_cache(window: int | None, layout: CacheLayout, head_dim: int) -> LayerCache:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    codec = codec_of(layout, head_dim)
    if window is None and layout.window is not None:
        return SinkWindowCache(layout.sink, layout.window)
    if window is not None and not layout.every_row:
        return WindowCache(window, codec)
    return FullCache(window, codec)


def attention_mask(
    rows: int, offset: int, window: int | None, device: torch.device, sink: int = 0
) -> torch.Tensor | None:
    """Return the mask of ``rows`` queries from ``offset`` on over the keys a cache returned for them.

    Returns:
        bool ``[1, 1, rows, keys]``, True where a query may attend, or None where torch needs none: one query sees every
        key it is given, and a first chunk within the window is plainly causal (torch aligns that at the start, so a
        chunk after other rows always carries its mask).
    """
    if rows == 1:
        return None
    first, end = 0 if window is None else max(0, offset - window + 1), offset + rows
    bounded = window is not None and end - max(first, sink) > window
    if offset == 0 and not bounded:
        return None
    shown = 0 if window is None else _sink_rows(offset, window, sink)
    keys = torch.arange(first - shown, end, device=device)
    keys[:shown] = torch.arange(shown, device=device)
    queries = torch.arange(offset, end, device=device)[:, None]
    mask = keys <= queries
    if bounded and window is not None:
        mask &= (queries - keys < window) | (keys < sink)
    return mask[None, None]


def _sink_rows(offset: int, window: int, sink: int) -> int:
    """Return how many sink rows lie before the window of an append at ``offset``."""
    return min(sink, max(0, offset - window + 1))
