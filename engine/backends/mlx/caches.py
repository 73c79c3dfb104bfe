"""Key and value caches of one layer on MLX, croppable to an absolute length.

They offer what mlx-lm's attention modules call (``offset``, ``update_and_fetch``) and keep their rows in temporal
order, so that a crop is arithmetic on lengths and never moves a row. Arrays are ``[1, heads, rows, head_dim]``.
"""

from __future__ import annotations

import mlx.core as mx

from engine.backends.mlx.rows import Codec, RowStore, codec_of
from engine.errors import CacheCropError
from engine.types import CacheLayout

GROW_ROWS = 256
"""How many rows a cache grows by, as in mlx-lm."""

Rows = tuple[mx.array, mx.array]
"""Keys and values."""


class FullCache:
    """Every row is kept; with a ``window`` the attention still sees only the rows it may."""

    def __init__(self, window: int | None = None, codec: Codec | None = None) -> None:
        self.window = window
        self.offset = 0
        self._store = RowStore(codec)

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Rows:
        """Append rows and return those the new queries may attend to, oldest first."""
        begin, end = self.offset, self.offset + keys.shape[2]
        parts = self._store.encode(keys, values)
        if end > self._store.capacity:
            self._store.move(parts, 0, begin, -(-end // GROW_ROWS) * GROW_ROWS)
        self._store.write(parts, begin)
        self.offset = end
        first = 0 if self.window is None else max(0, begin - self.window + 1)
        return self._store.rows(first, end)

    def mask(self, rows: int) -> mx.array | str | None:
        """Return the mask over what the next append of ``rows`` will return."""
        return attention_mask(rows, self.offset, self.window)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``; any earlier length is exact because every row is kept.

        Raises:
            CacheCropError: If ``length`` is negative or beyond what was seen.
        """
        if not 0 <= length <= self.offset:
            raise CacheCropError(f"crop to {length} positions; expected 0 <= length <= {self.offset}")
        self.offset = length

    def held(self) -> Rows:
        """Return every row, for a study of what storing them otherwise would change."""
        return self._store.rows(0, self.offset)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._store.measured_bytes()

    def buffers(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        return self._store.buffers()


class WindowCache:
    """A sliding layer: the rows its newest append could see, that append, and a little slack.

    Physical row r holds position ``_base + r``. Rows leave only when an append finds no room, and never one that the
    append itself may attend to, so a crop to its start or later needs no row that is gone.
    """

    def __init__(self, window: int, slack_rows: int | None = None, codec: Codec | None = None) -> None:
        self.window = window
        self.slack_rows = max(8, window // 16) if slack_rows is None else slack_rows
        self.offset = 0
        self._base = 0
        self._floor = 0
        self._store = RowStore(codec)

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Rows:
        """Append rows and return the last ``window - 1`` earlier rows with them, oldest first."""
        rows = keys.shape[2]
        first = max(0, self.offset - self.window + 1)
        end = self.offset + rows
        parts = self._store.encode(keys, values)
        if end - self._base > self._store.capacity:
            capacity = end - first if rows > self.slack_rows else self._decode_capacity()
            self._store.move(parts, first - self._base, self.offset - self._base, capacity)
            self._base = first
        self._store.write(parts, self.offset - self._base)
        self._floor = self.offset
        self.offset = end
        return self._store.rows(first - self._base, end - self._base)

    def _decode_capacity(self) -> int:
        """Return how many rows to hold while decoding; a prefill chunk gets exactly its own.

        It follows from the length alone, so that equal work is held in equal bytes however it was split into blocks.
        """
        held = -(-(self.offset + 1) // GROW_ROWS) * GROW_ROWS
        return min(held, self.window - 1) + 2 * self.slack_rows

    def mask(self, rows: int) -> mx.array | str | None:
        """Return the mask over what the next append of ``rows`` will return."""
        return attention_mask(rows, self.offset, self.window)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``.

        Raises:
            CacheCropError: If ``length`` lies before the start of the last append, or beyond what was seen.
        """
        if not self._floor <= length <= self.offset:
            raise CacheCropError(
                f"crop of a sliding cache to {length} positions; expected {self._floor} <= length <= {self.offset}: "
                "rows older than the last append are gone"
            )
        self.offset = length

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._store.measured_bytes()

    def buffers(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        return self._store.buffers()


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
    def offset(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._recent.offset

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._recent.length

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Rows:
        """Append rows and return the sink's rows that left the window, then the window's, oldest first."""
        begin = self.offset
        if begin < self.sink:
            early = self._first.encode(keys[..., : self.sink - begin, :], values[..., : self.sink - begin, :])
            if self._first.capacity == 0:
                # A write over a whole array would make it a view that keeps all the prompt's rows alive.
                self._first.move(early, 0, 0, self.sink + 1)
            self._first.write(early, begin)
        recent = self._recent.update_and_fetch(keys, values)
        shown = _sink_rows(begin, self.window, self.sink)
        if not shown:
            return recent
        sink_keys, sink_values = self._first.rows(0, shown)
        return mx.concatenate([sink_keys, recent[0]], axis=2), mx.concatenate([sink_values, recent[1]], axis=2)

    def mask(self, rows: int) -> mx.array | str | None:
        """Return the mask over what the next append of ``rows`` will return."""
        return attention_mask(rows, self.offset, self.window, self.sink)

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``.

        Raises:
            CacheCropError: If ``length`` lies before the start of the last append, or beyond what was seen.
        """
        self._recent.crop(length)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._first.measured_bytes() + self._recent.measured_bytes()

    def buffers(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        return [*self._first.buffers(), *self._recent.buffers()]


LayerCache = FullCache | WindowCache | SinkWindowCache


def make_cache(window: int | None, layout: CacheLayout, head_dim: int) -> LayerCache:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    codec = codec_of(layout, head_dim)
    if window is None and layout.window is not None:
        return SinkWindowCache(layout.sink, layout.window)
    if window is not None and not layout.every_row:
        return WindowCache(window, codec=codec)
    return FullCache(window, codec)


def attention_mask(rows: int, offset: int, window: int | None, sink: int = 0) -> mx.array | str | None:
    """Return the mask for ``rows`` queries from ``offset`` on over the keys a cache returned for them.

    None lets every query see every key, ``"causal"`` is MLX's fused causal mask aligned at the end.
    """
    if rows == 1:
        return None
    if window is None:
        return "causal"
    first, end = max(0, offset - window + 1), offset + rows
    if end - max(first, sink) <= window:
        return "causal"
    keys = mx.concatenate([mx.arange(_sink_rows(offset, window, sink)), mx.arange(first, end)])
    queries = mx.arange(offset, end)[:, None]
    return (keys <= queries) & ((queries - keys < window) | (keys < sink))


def _sink_rows(offset: int, window: int, sink: int) -> int:
    """Return how many sink rows lie before the window of an append at ``offset``."""
    return min(sink, max(0, offset - window + 1))
