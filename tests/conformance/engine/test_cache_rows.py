"""The caches of both array libraries against one that keeps every row, under random appends and crops."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.backends.rows import stored_errors
from engine.errors import CacheCropError
from engine.structure.layout import CacheLayout
from tests.conformance.engine.row_libraries import HEADS, RowLibrary, library

DIM = 4
LAYOUTS = ["native", "full", "affine8", "affine4/4", "sink0+window5", "sink3+window1", "sink4+window9"]
back = st.none() | st.floats(0, 1)
turns = st.lists(st.tuples(st.integers(1, 12), st.floats(0, 1), back), min_size=1, max_size=25)


@pytest.fixture(params=["mlx", "torch"], scope="module")
def row_library(request: pytest.FixtureRequest) -> RowLibrary:
    return library(request.param)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(window=st.sampled_from([None, None, 1, 2, 5, 8, 17]), layout=st.sampled_from(LAYOUTS), plan=turns)
def test_every_row_sees_what_a_cache_that_keeps_everything_would_show(row_library, window, layout, plan) -> None:
    rules = CacheLayout.parse(layout)
    cache = row_library.caches.make_cache(window, rules, DIM)
    # A quantised cache shows what one row, coded by itself, reads back as.
    codec = None if rules.bits is None else row_library.rows.Affine(rules.bits, rules.group_of(DIM))
    sink, bound = (rules.sink, rules.window) if window is None else (0, window)
    history: list[float] = []
    for salt, (rows, kept_share, back_share) in enumerate(plan):
        before = cache.length
        fresh = row_library.rows_of(before, rows, DIM, salt / 1000)
        mask = row_library.mask(cache, rows)
        keys, values = row_library.append(cache, fresh, -fresh)
        one_by_one = [fresh[:, :, row : row + 1] for row in range(rows)]
        stored = [codec.decode(codec.encode(row)) if codec else row for row in one_by_one]
        history = history[:before] + [row[0, 0, 0, 0].item() for row in stored]
        assert codec or values.tolist() == (-keys).tolist()
        for row, visible in enumerate(row_library.visible(mask, rows, keys)):
            position = before + row
            first = 0 if bound is None else max(0, position - bound + 1)
            assert visible == history[: min(sink, first)] + history[first : position + 1]
        cache.crop(before + round(kept_share * rows))
        assert cache.length == before + round(kept_share * rows)
        if back_share is not None:
            length = cache.length
            try:
                cache.rewind(round(back_share * length))
            except CacheCropError:
                assert cache.length == length
            else:
                assert cache.length == round(back_share * length)


def test_a_cache_goes_back_as_far_as_its_window_reaches_and_no_further(row_library) -> None:
    cache = row_library.caches.window_cache(8)
    for _ in range(3):
        row_library.append(cache, row_library.rows_of(cache.length, 4, DIM), row_library.rows_of(cache.length, 4, DIM))
    cache.rewind(3)
    row_library.append(cache, row_library.rows_of(3, 40, DIM), row_library.rows_of(3, 40, DIM))
    row_library.append(cache, row_library.rows_of(43, 1, DIM), row_library.rows_of(43, 1, DIM))
    with pytest.raises(CacheCropError, match="rows older than the last append are gone"):
        cache.rewind(9)
    assert cache.length == 44


@settings(max_examples=30, deadline=None)
@given(
    bits=st.sampled_from([8, 4]),
    group=st.sampled_from([2, 4, 8]),
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=16, max_size=16),
)
def test_codes_are_within_half_a_step_of_the_value_and_within_its_groups_range(
    row_library, bits, group, values
) -> None:
    rows = row_library.array([[[values[:8], values[8:]]]])
    codec = row_library.rows.Affine(bits, group)
    parts = codec.encode(rows)
    assert str(parts[0].dtype).endswith("uint8")
    assert parts[0].shape[-1] == 8 * bits // 8
    back = codec.decode(parts)
    assert back.dtype == rows.dtype
    for got, exact in zip(back.reshape(-1, group).tolist(), rows.reshape(-1, group).tolist(), strict=True):
        step = (max(exact) - min(exact)) / (2**bits - 1)
        for decoded, value in zip(got, exact, strict=True):
            assert abs(decoded - value) <= step / 2 + 1e-4 * max(1.0, abs(value))


def test_the_error_of_storing_is_summed_over_every_value(row_library) -> None:
    # Values of every size within a group, none of them on the grid of the codes.
    listed = [
        [[((row * 8 + column) * 0.6180339887 + head * 0.1) % 1.0 * 6 - 3 for column in range(8)] for row in range(30)]
        for head in range(HEADS)
    ]
    rows, squared = row_library.array([listed]), row_library.rows.squared
    errors = {
        bits: stored_errors([(rows, rows * 2)], CacheLayout.parse(f"affine{bits}"), row_library.rows.LIBRARY, squared)
        for bits in (8, 4)
    }
    for bits, (keys, values) in errors.items():
        assert (keys.layer, keys.side, values.side, keys.values) == (0, "keys", "values", HEADS * 30 * 8)
        assert keys.bits == bits + 2 * 32 / 8
        assert values.reference_sq == pytest.approx(4 * keys.reference_sq)
        assert values.error_sq == pytest.approx(4 * keys.error_sq, rel=1e-3)
    assert errors[4][0].error_sq > 100 * errors[8][0].error_sq > 0
    assert stored_errors([(rows, rows)], CacheLayout.NATIVE, row_library.rows.LIBRARY, squared)[0].error_sq == 0


@pytest.mark.parametrize(("layout", "share"), [("affine8", 10 / 32), ("affine4", 6 / 32)])
def test_quantised_rows_are_held_in_the_bytes_of_codes_scales_and_offsets(
    row_library, layout: str, share: float
) -> None:
    bytes_held = []
    for name in ("native", layout):
        cache = row_library.caches.make_cache(None, CacheLayout.parse(name), 32)
        rows = row_library.rows_of(0, 300, 32)
        row_library.append(cache, rows, rows)
        bytes_held.append(cache.measured_bytes())
        assert cache.measured_bytes() == sum(buffer.nbytes for buffer in cache.buffers())
    assert bytes_held[1] == bytes_held[0] * share


def test_a_crop_before_the_last_append_is_refused_instead_of_wrong(row_library) -> None:
    cache = row_library.caches.window_cache(8)
    for rows in (20, 5):
        row_library.append(
            cache, row_library.rows_of(cache.length, rows, DIM), row_library.rows_of(cache.length, rows, DIM)
        )
    with pytest.raises(CacheCropError, match="crop of a sliding cache to 19 positions; expected 20 <= length <= 25"):
        cache.crop(19)
    with pytest.raises(CacheCropError, match="26"):
        cache.crop(26)
    cache.crop(20)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_full_cache_refuses_lengths_it_never_reached(row_library, rows: int) -> None:
    cache = row_library.caches.make_cache(None, CacheLayout.NATIVE, DIM)
    if rows:
        row_library.append(cache, row_library.rows_of(0, rows, DIM), row_library.rows_of(0, rows, DIM))
    for length in (-1, rows + 1):
        with pytest.raises(CacheCropError, match=f"expected 0 <= length <= {rows}"):
            cache.crop(length)
