"""The MLX caches against a naive one that keeps every row, under random appends and crops."""

from __future__ import annotations

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from engine.backends.mlx.caches import full_cache, make_cache, next_mask, sink_window_cache, window_cache  # noqa: E402
from engine.backends.mlx.rows import LIBRARY, Affine, squared  # noqa: E402
from engine.backends.rows import stored_errors  # noqa: E402
from engine.errors import CacheCropError  # noqa: E402
from engine.types import CacheLayout  # noqa: E402

HEADS, DIM = 2, 4

turns = st.lists(st.tuples(st.integers(1, 12), st.floats(0, 1)), min_size=1, max_size=25)


def rows_of(start: int, count: int, salt: int):
    """Rows that name their position and the append that wrote them."""
    base = mx.arange(start, start + count, dtype=mx.float32)[None, None, :, None]
    return mx.broadcast_to(base + salt / 1000, (1, HEADS, count, DIM))


def visible(mask, rows: int, shown) -> list[list[float]]:
    """Return for each new row the key values its attention can see."""
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


LAYOUTS = ["native", "full", "affine8", "affine4/4", "sink0+window5", "sink3+window1", "sink4+window9"]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(window=st.sampled_from([None, None, 1, 2, 5, 8, 17]), layout=st.sampled_from(LAYOUTS), plan=turns)
def test_every_row_sees_what_a_cache_that_keeps_everything_would_show(window, layout, plan) -> None:
    rules = CacheLayout.parse(layout)
    cache = make_cache(window, rules, DIM)
    # A quantised cache shows what one row, coded by itself, reads back as.
    codec = None if rules.bits is None else Affine(rules.bits, rules.group_of(DIM))
    sink, bound = (rules.sink, rules.window) if window is None else (0, window)
    history: list[float] = []
    for salt, (rows, kept_share) in enumerate(plan):
        before = cache.length
        fresh = rows_of(before, rows, salt)
        mask = next_mask(cache, rows)
        keys, values = cache.update_and_fetch(fresh, fresh + 0.5)
        one_by_one = [fresh[:, :, row : row + 1] for row in range(rows)]
        stored = [codec.decode(codec.encode(row)) if codec else row for row in one_by_one]
        history = history[:before] + [row[0, 0, 0, 0].item() for row in stored]
        assert codec or mx.array_equal(values, keys + 0.5)
        for row, seen in enumerate(visible(mask, rows, keys)):
            position = before + row
            first = 0 if bound is None else max(0, position - bound + 1)
            assert seen == history[: min(sink, first)] + history[first : position + 1]
        cache.crop(before + round(kept_share * rows))
        assert cache.length == before + round(kept_share * rows)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([8, 4]),
    group=st.sampled_from([2, 4, 8]),
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=16, max_size=16),
)
def test_codes_are_within_half_a_step_of_the_value_and_within_its_groups_range(bits, group, values) -> None:
    rows = mx.array(values).reshape(1, 1, 2, 8)
    codec = Affine(bits, group)
    parts = codec.encode(rows)
    assert parts[0].dtype == mx.uint8
    assert parts[0].shape[-1] == 8 * bits // 8
    back = codec.decode(parts)
    for got, exact in zip(back.reshape(-1, group).tolist(), rows.reshape(-1, group).tolist(), strict=True):
        step = (max(exact) - min(exact)) / (2**bits - 1)
        for one, value in zip(got, exact, strict=True):
            assert abs(one - value) <= step / 2 + 1e-4 * max(1.0, abs(value))


def test_the_error_of_storing_is_summed_over_every_value() -> None:
    rows = mx.random.normal((1, HEADS, 30, 8), key=mx.random.key(0))
    found = {
        bits: stored_errors([(rows, rows * 2)], CacheLayout.parse(f"affine{bits}"), LIBRARY, squared) for bits in (8, 4)
    }
    for bits, (keys, values) in found.items():
        assert (keys.layer, keys.side, values.side, keys.values) == (0, "keys", "values", HEADS * 30 * 8)
        assert keys.bits == bits + 2 * 32 / 8
        assert values.reference_sq == pytest.approx(4 * keys.reference_sq)
        assert values.error_sq == pytest.approx(4 * keys.error_sq, rel=1e-3)
    assert found[4][0].error_sq > 100 * found[8][0].error_sq > 0
    assert stored_errors([(rows, rows)], CacheLayout.NATIVE, LIBRARY, squared)[0].error_sq == 0


@pytest.mark.parametrize(("layout", "share"), [("affine8", 10 / 32), ("affine4", 6 / 32)])
def test_quantised_rows_are_held_in_the_bytes_of_codes_scales_and_offsets(layout: str, share: float) -> None:
    held = []
    for name in ("native", layout):
        cache = make_cache(None, CacheLayout.parse(name), 32)
        rows = mx.random.normal((1, HEADS, 300, 32), key=mx.random.key(1))
        cache.update_and_fetch(rows, rows)
        held.append(cache.measured_bytes())
        assert cache.measured_bytes() == sum(buffer.nbytes for buffer in cache.buffers())
    assert held[1] == held[0] * share


def test_a_sink_and_window_cache_stops_growing() -> None:
    cache = sink_window_cache(4, 8)
    held = set()
    for turn in range(60):
        rows = 1 + turn % 5
        cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
        held.add(cache.measured_bytes())
    assert held == {2 * HEADS * DIM * 4 * (4 + 1 + 7 + 2 * 8)}
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


def test_a_long_prefill_leaves_no_more_than_the_window_after_one_step() -> None:
    cache = window_cache(8)
    cache.update_and_fetch(rows_of(0, 500, 0), rows_of(0, 500, 0))
    cache.update_and_fetch(rows_of(500, 1, 0), rows_of(500, 1, 0))
    assert cache.measured_bytes() == 2 * HEADS * DIM * 4 * (7 + 2 * cache.slack_rows)


@settings(max_examples=25, deadline=None)
@given(window=st.sampled_from([20, 64, 700]), split=st.lists(st.integers(1, 4), min_size=1, max_size=200))
def test_equal_lengths_are_held_in_equal_bytes_however_they_were_reached(window, split) -> None:
    held = []
    for blocks in (split, sorted(split), [1] * sum(split)):
        cache = window_cache(window)
        cache.update_and_fetch(rows_of(0, 30, 0), rows_of(0, 30, 0))
        for rows in blocks:
            cache.update_and_fetch(rows_of(cache.length, rows, 0), rows_of(cache.length, rows, 0))
        held.append(cache.measured_bytes())
    assert len(set(held)) == 1


def test_crops_that_cannot_be_exact_raise() -> None:
    sliding = window_cache(4)
    for start in (0, 6):
        sliding.update_and_fetch(rows_of(start, 6, 0), rows_of(start, 6, 0))
    with pytest.raises(CacheCropError, match="expected 6 <= length <= 12"):
        sliding.crop(5)
    with pytest.raises(CacheCropError):
        sliding.crop(13)
    sliding.crop(6)
    full = full_cache()
    with pytest.raises(CacheCropError, match="expected 0 <= length <= 0"):
        full.crop(1)
