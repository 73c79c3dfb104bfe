"""Key and value caches of one layer on MLX, croppable to an absolute length.

They offer what mlx-lm's attention modules call (``offset``, ``update_and_fetch``) and keep their rows in temporal
order, so that a crop is arithmetic on lengths and never moves a row. Arrays are ``[1, heads, rows, head_dim]``.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

from engine.errors import CacheCropError
from engine.types import CacheLayout

GROW_ROWS = 256
"""How many rows a cache grows by, as in mlx-lm."""


class FullCache:
    """Every row is kept; with a ``window`` the attention still sees only the rows it may."""

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.offset = 0
        self._keys: Any = None
        self._values: Any = None

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append rows and return those the new queries may attend to, oldest first."""
        rows = keys.shape[2]
        begin, end = self.offset, self.offset + rows
        if self._keys is None or end > self._keys.shape[2]:
            capacity = -(-end // GROW_ROWS) * GROW_ROWS
            self._keys = _grown(self._keys, keys, 0, begin, capacity)
            self._values = _grown(self._values, values, 0, begin, capacity)
        self._keys[..., begin:end, :] = keys
        self._values[..., begin:end, :] = values
        self.offset = end
        first = 0 if self.window is None else max(0, begin - self.window + 1)
        return self._keys[..., first:end, :], self._values[..., first:end, :]

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``; any earlier length is exact because every row is kept.

        Raises:
            CacheCropError: If ``length`` is negative or beyond what was seen.
        """
        if not 0 <= length <= self.offset:
            raise CacheCropError(f"crop to {length} positions; expected 0 <= length <= {self.offset}")
        self.offset = length

    def measured_bytes(self) -> int:
        """Return the bytes of both buffers."""
        return _bytes(self._keys) + _bytes(self._values)

    def buffers(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        return [array for array in (self._keys, self._values) if array is not None]


class WindowCache:
    """A sliding layer: the rows its newest append could see, that append, and a little slack.

    Physical row r holds position ``_base + r``. Rows leave only when an append finds no room, and never one that the
    append itself may attend to, so a crop to its start or later needs no row that is gone.
    """

    def __init__(self, window: int, slack_rows: int | None = None) -> None:
        self.window = window
        self.slack_rows = max(8, window // 16) if slack_rows is None else slack_rows
        self.offset = 0
        self._base = 0
        self._floor = 0
        self._keys: Any = None
        self._values: Any = None

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append rows and return the last ``window - 1`` earlier rows with them, oldest first."""
        rows = keys.shape[2]
        first = max(0, self.offset - self.window + 1)
        end = self.offset + rows
        if self._keys is None or end - self._base > self._keys.shape[2]:
            capacity = end - first if rows > self.slack_rows else self._decode_capacity()
            old_begin, old_end = first - self._base, self.offset - self._base
            self._keys = _grown(self._keys, keys, old_begin, old_end, capacity)
            self._values = _grown(self._values, values, old_begin, old_end, capacity)
            self._base = first
        begin = self.offset - self._base
        self._keys[..., begin : begin + rows, :] = keys
        self._values[..., begin : begin + rows, :] = values
        self._floor = self.offset
        self.offset = end
        shown = slice(first - self._base, end - self._base)
        return self._keys[..., shown, :], self._values[..., shown, :]

    def _decode_capacity(self) -> int:
        """Return how many rows to hold while decoding; a prefill chunk gets exactly its own.

        It follows from the length alone, so that equal work is held in equal bytes however it was split into blocks.
        """
        held = -(-(self.offset + 1) // GROW_ROWS) * GROW_ROWS
        return min(held, self.window - 1) + 2 * self.slack_rows

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
        """Return the bytes of both buffers."""
        return _bytes(self._keys) + _bytes(self._values)

    def buffers(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        return [array for array in (self._keys, self._values) if array is not None]


LayerCache = FullCache | WindowCache


def make_cache(window: int | None, layout: CacheLayout) -> LayerCache:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    if window is not None and layout is CacheLayout.NATIVE:
        return WindowCache(window)
    return FullCache(window)


def attention_mask(rows: int, offset: int, window: int | None) -> mx.array | str | None:
    """Return the mask for ``rows`` queries from ``offset`` on over the keys a cache returned for them.

    None lets every query see every key, ``"causal"`` is MLX's fused causal mask aligned at the end.
    """
    if rows == 1:
        return None
    if window is None:
        return "causal"
    shown = min(offset, window - 1)
    if shown + rows <= window:
        return "causal"
    return create_causal_mask(rows, shown, window_size=window)


def _grown(old: mx.array | None, like: mx.array, begin: int, end: int, capacity: int) -> mx.array:
    """Return a zeroed buffer of ``capacity`` rows that starts with rows [begin, end) of ``old``."""
    shape = [*like.shape[:2], capacity - (end - begin), like.shape[3]]
    room = mx.zeros(shape, like.dtype)
    return room if old is None or end == begin else mx.concatenate([old[..., begin:end, :], room], axis=2)


def _bytes(array: mx.array | None) -> int:
    return 0 if array is None else int(array.nbytes)
