"""The MLX caches against a naive one that keeps every row, under random appends and crops."""

from __future__ import annotations

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from engine.backends.mlx.caches import FullCache, WindowCache, attention_mask, make_cache  # noqa: E402
from engine.errors import CacheCropError  # noqa: E402
from engine.types import CacheLayout  # noqa: E402

HEADS, DIM = 2, 4

turns = st.lists(st.tuples(st.integers(1, 12), st.floats(0, 1)), min_size=1, max_size=25)


def rows_of(start: int, count: int, salt: int):
    """Rows that name their position and the append that wrote them."""
    base = mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None]
    return mx.broadcast_to(base + salt / 1000, (1, HEADS, count, DIM))


def visible(cache, rows: int, before: int, shown) -> list[list[list[float]]]:
    """Return for each new row the key values its attention can see."""
    mask = attention_mask(rows, before, cache.window)
    total = shown.shape[2]
    keys = shown[0, 0, :, 0].tolist()
    seen = []
    for row in range(rows):
        allowed = [True] * total
        if isinstance(mask, str):
            allowed = [index <= total - rows + row for index in range(total)]
        elif mask is not None:
            allowed = mask[row].tolist()
        seen.append([key for key, fine in zip(keys, allowed, strict=True) if fine])
    return seen


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(window=st.sampled_from([None, 1, 2, 5, 8, 17]), layout=st.sampled_from(list(CacheLayout)), plan=turns)
def test_every_row_sees_what_a_cache_that_keeps_everything_would_show(window, layout, plan) -> None:
    cache = make_cache(window, layout)
    history: list[float] = []
    for salt, (rows, kept_share) in enumerate(plan):
        before = cache.length
        fresh = rows_of(before, rows, salt)
        keys, values = cache.update_and_fetch(fresh, fresh + 0.5)
        history = history[:before] + fresh[0, 0, :, 0].tolist()
        assert mx.array_equal(values, keys + 0.5)
        for row, seen in enumerate(visible(cache, rows, before, keys)):
            position = before + row
            first = 0 if window is None else max(0, position - window + 1)
            assert seen == history[first : position + 1]
        cache.crop(before + round(kept_share * rows))
        assert cache.length == before + round(kept_share * rows)


@settings(max_examples=25, deadline=None)
@given(window=st.integers(1, 40), blocks=st.lists(st.integers(1, 8), min_size=60, max_size=90))
def test_a_window_cache_never_grows_beyond_its_window_and_slack(window, blocks) -> None:
    cache = WindowCache(window)
    for rows in blocks:
        cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
    row_bytes = 2 * HEADS * DIM * 4
    assert cache.measured_bytes() == row_bytes * (window - 1 + 2 * cache.slack_rows)
    assert cache.measured_bytes() == sum(buffer.nbytes for buffer in cache.buffers())


def test_a_long_prefill_leaves_no_more_than_the_window_after_one_step() -> None:
    cache = WindowCache(8)
    cache.update_and_fetch(rows_of(0, 500, 0), rows_of(0, 500, 0))
    cache.update_and_fetch(rows_of(500, 1, 0), rows_of(500, 1, 0))
    assert cache.measured_bytes() == 2 * HEADS * DIM * 4 * (7 + 2 * cache.slack_rows)


@settings(max_examples=25, deadline=None)
@given(window=st.sampled_from([20, 64, 700]), split=st.lists(st.integers(1, 4), min_size=1, max_size=200))
def test_equal_lengths_are_held_in_equal_bytes_however_they_were_reached(window, split) -> None:
    held = []
    for blocks in (split, sorted(split), [1] * sum(split)):
        cache = WindowCache(window)
        cache.update_and_fetch(rows_of(0, 30, 0), rows_of(0, 30, 0))
        for rows in blocks:
            cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
        held.append(cache.measured_bytes())
    assert len(set(held)) == 1


def test_crops_that_cannot_be_exact_raise() -> None:
    sliding = WindowCache(4)
    for start in (0, 6):
        sliding.update_and_fetch(rows_of(start, 6, 0), rows_of(start, 6, 0))
    with pytest.raises(CacheCropError, match="expected 6 <= length <= 12"):
        sliding.crop(5)
    with pytest.raises(CacheCropError):
        sliding.crop(13)
    sliding.crop(6)
    full = FullCache()
    with pytest.raises(CacheCropError, match="expected 0 <= length <= 0"):
        full.crop(1)
