"""Key and value caches of one layer on MLX, and the masks over the rows they show."""

from __future__ import annotations

import mlx.core as mx

from engine.backends.caches import FullRows, LayerRows, SinkWindowRows, WindowRows, is_bounded, layer_rows, sink_rows
from engine.backends.mlx.rows import LIBRARY
from engine.backends.rows import RowStore
from engine.structure.layout import CacheLayout

GROW_ROWS = 256
"""How many rows a cache grows by, as in mlx-lm."""


def slack_of(window: int) -> int:
    """Return how many spare rows a window gets."""
    return max(8, window // 16)


def full_cache(window: int | None = None) -> FullRows:
    """Return a cache that keeps every row."""
    return FullRows(RowStore(LIBRARY), window, GROW_ROWS)


def window_cache(window: int, slack_rows: int | None = None) -> WindowRows:
    """Return a cache that keeps a window, a block and a little slack."""
    return WindowRows(RowStore(LIBRARY), window, slack_of(window) if slack_rows is None else slack_rows, GROW_ROWS)


def sink_window_cache(sink: int, window: int) -> SinkWindowRows:
    """Return a cache that keeps the first rows and the newest."""
    return SinkWindowRows(RowStore(LIBRARY), sink, window, slack_of(window), GROW_ROWS)


def make_cache(window: int | None, layout: CacheLayout, head_dim: int) -> LayerRows:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    return layer_rows(window, layout, head_dim, LIBRARY, (slack_of, GROW_ROWS))


def next_mask(cache: LayerRows, rows: int) -> mx.array | str | None:
    """Return the mask over what the next append of ``rows`` to ``cache`` will return."""
    return attention_mask(rows, cache.length, cache.window, cache.sink)


def attention_mask(rows: int, offset: int, window: int | None, sink: int = 0) -> mx.array | str | None:
    """Return the mask for ``rows`` queries from ``offset`` on over the keys a cache returned for them.

    None lets every query see every key, ``"causal"`` is MLX's fused causal mask aligned at the end.
    """
    if rows == 1:
        return None
    if window is None or not is_bounded(rows, offset, window, sink):
        return "causal"
    first, end = max(0, offset - window + 1), offset + rows
    keys = mx.concatenate([mx.arange(sink_rows(offset, window, sink)), mx.arange(first, end)])
    queries = mx.arange(offset, end)[:, None]
    return (keys <= queries) & ((queries - keys < window) | (keys < sink))
