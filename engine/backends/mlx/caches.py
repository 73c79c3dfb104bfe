"""Key and value caches of one layer on MLX, and the masks over the rows they show."""

from __future__ import annotations

import mlx.core as mx

from engine.backends.caches import LayerRows, WindowRows
from engine.backends.layers import layer_rows
from engine.backends.mlx.rows import LIBRARY
from engine.backends.rows import RowStore
from engine.backends.visibility import Visibility
from engine.structure.layout import LONGEST_BLOCK, CacheLayout

GROW_ROWS = 256
"""How many rows a cache grows by, as in mlx-lm."""


def slack_of(window: int) -> int:
    """Return how many spare rows a bounded layer's window gets."""
    return max(8, window // 16)


def sliding_slack_of(window: int) -> int:
    """Return how many spare rows a sliding layer's window gets: any block's, so that its buffer keeps one shape."""
    return max(LONGEST_BLOCK, window // 16)


def window_cache(window: int, slack_rows: int | None = None) -> WindowRows:
    """Return a cache that keeps a window, a block and a little slack."""
    slack_rows = sliding_slack_of(window) if slack_rows is None else slack_rows
    return WindowRows(RowStore(LIBRARY), window, slack_rows, GROW_ROWS)


def make_cache(window: int | None, layout: CacheLayout, head_dim: int) -> LayerRows:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    return layer_rows(window, layout, head_dim, LIBRARY, (sliding_slack_of, slack_of, GROW_ROWS))


def attention_mask(visible: Visibility) -> mx.array | str | None:
    """Return the mask of the new rows over the rows that their append returns.

    None lets every query see every key, ``"causal"`` is MLX's fused causal mask aligned at the end.
    """
    if visible.alone is not None:
        heads, group = visible.alone
        wanted = mx.arange(visible.rows)[:, None] * group
        mine = mx.arange(heads)[:, None, None] % group
        return (wanted + mine == mx.arange(visible.rows * group))[None]
    if visible.rows == 1:
        return None
    if visible.causal or visible.window is None:
        return "causal"
    keys = mx.concatenate([mx.arange(*run) for run in visible.runs])
    queries = mx.arange(visible.start, visible.start + visible.rows)[:, None]
    near = queries - keys < visible.window
    if visible.again is not None:
        # A row made again is seen from where the window no longer reaches it.
        near = near != mx.concatenate([mx.full(run[1] - run[0], run == visible.again) for run in visible.runs])
    return (keys <= queries) & (near | (keys < visible.sink))
