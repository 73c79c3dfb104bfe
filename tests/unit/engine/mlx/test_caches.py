"""How many bytes the MLX caches hold; what they show is tested for both libraries in ``tests/conformance/engine``."""

from __future__ import annotations

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from engine.backends.mlx.caches import make_cache, window_cache  # noqa: E402
from engine.errors import CacheCropError  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402

HEADS, DIM = 2, 4


def rows_of(start: int, count: int, salt: int):
    """Rows that name their position and the append that wrote them."""
    base = mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None]
    return mx.broadcast_to(base + salt / 1000, (1, HEADS, count, DIM))


def test_a_sink_and_window_cache_stops_growing() -> None:
    cache = make_cache(None, CacheLayout(sink=4, window=8), DIM)
    sizes = set()
    for turn in range(60):
        rows = 1 + turn % 5
        cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
        sizes.add(cache.measured_bytes())
    assert sizes == {2 * HEADS * DIM * 4 * (4 + 1 + 7 + 2 * 8)}
    with pytest.raises(CacheCropError, match="rows older than the last append are gone"):
        cache.crop(cache.length - 6)


@settings(max_examples=25, deadline=None)
@given(window=st.integers(1, 40), blocks=st.lists(st.integers(1, 8), min_size=60, max_size=90))
def test_a_window_cache_never_grows_beyond_its_window_and_slack(window, blocks) -> None:
    cache = window_cache(window)
    for rows in blocks:
        cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
    row_bytes = 2 * HEADS * DIM * 4
    assert cache.measured_bytes() == row_bytes * (window - 1 + 2 * cache.slack_rows)
    assert cache.measured_bytes() == sum(buffer.nbytes for buffer in cache.buffers())


def test_a_window_keeps_one_buffer_size_whatever_blocks_come() -> None:
    sizes = set()
    cache = window_cache(64)
    cache.update_and_fetch(rows_of(0, 300, 0), rows_of(0, 300, 0))
    for rows in (1, 9, 17, 4, 13, 1, 17, 2) * 12:
        cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
        cache.crop(cache.length - rows // 2)
        sizes.add(cache.buffers()[0].shape[2])
    assert len(sizes) == 1  # another size is another graph to build, and to trace


def test_a_long_prefill_leaves_no_more_than_the_window_after_one_step() -> None:
    cache = window_cache(8)
    cache.update_and_fetch(rows_of(0, 500, 0), rows_of(0, 500, 0))
    cache.update_and_fetch(rows_of(500, 1, 0), rows_of(500, 1, 0))
    assert cache.measured_bytes() == 2 * HEADS * DIM * 4 * (7 + 2 * cache.slack_rows)


@settings(max_examples=25, deadline=None)
@given(window=st.sampled_from([20, 64, 700]), split=st.lists(st.integers(1, 4), min_size=1, max_size=200))
def test_equal_lengths_are_held_in_equal_bytes_however_they_were_reached(window, split) -> None:
    sizes = []
    for blocks in (split, sorted(split), [1] * sum(split)):
        cache = window_cache(window)
        cache.update_and_fetch(rows_of(0, 30, 0), rows_of(0, 30, 0))
        for rows in blocks:
            cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
        sizes.append(cache.measured_bytes())
    assert len(set(sizes)) == 1
