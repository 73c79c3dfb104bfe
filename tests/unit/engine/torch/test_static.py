"""Static caches show every query exactly what a cache that keeps everything would, whatever was written and dropped."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.torch.caches import Held, HeldRows, LayerCaches
from engine.backends.torch.graphs.static import StaticCaches
from engine.errors import CacheCropError
from engine.structure.layout import CacheLayout

HEADS, DIM, BLOCK, CAPACITY = 2, 4, 6, 96
CPU = torch.device("cpu")


def rows_of(first: int, count: int, value: float = 0.0) -> torch.Tensor:
    """Rows that carry their position, and ``value`` to tell two writes of one position apart."""
    numbers = torch.arange(first, first + count, dtype=torch.float32) + value
    return numbers[None, None, :, None].expand(1, HEADS, count, DIM).clone()


def static(window: int | None, prefill: int, every_row: bool = False) -> StaticCaches:
    keys = rows_of(0, prefill)
    layers = Held({0: HeldRows(window, every_row or window is None, 0, keys, -keys)}, {})
    caches = StaticCaches(layers.rows, CAPACITY, BLOCK)
    caches.load(layers, prefill)
    return caches


@torch.inference_mode()
def appended(caches: StaticCaches, keys: torch.Tensor) -> list[list[float]]:
    """Write rows as a forward does; return for each query the key values it sees, oldest first."""
    rows = keys.shape[2]
    caches.stand_at(rows)
    caches.begin(rows)
    mask = caches.masks(rows, CPU)[0]
    shown, values = caches.update(keys, -keys, 0)
    assert torch.isfinite(shown).all() or torch.isnan(keys).any()
    assert torch.equal(values[~torch.isnan(values)], -shown[~torch.isnan(shown)])
    return [sorted(shown[0, 0, mask[0, 0, row], 0].tolist()) for row in range(rows)]


# A window of 11 fills its ring of 16 rows exactly; one of 12 would overwrite a visible row on a ring of 16.
turns = st.lists(st.tuples(st.integers(1, BLOCK), st.floats(0, 1)), min_size=1, max_size=14)


@settings(max_examples=150, deadline=None)
@given(
    window=st.sampled_from([None, 1, 2, 5, 11, 12, 17]), every_row=st.booleans(), prefill=st.integers(1, 12), plan=turns
)
def test_every_query_sees_what_a_naive_cache_would_show(window, every_row, prefill, plan) -> None:
    caches, naive = static(window, prefill, every_row), list(range(prefill))
    for turn, (rows, kept_share) in enumerate(plan, start=1):
        begin = caches.length
        keys = rows_of(begin, rows, turn / 64)
        naive = naive[:begin] + keys[0, 0, :, 0].tolist()
        for row, visible in enumerate(appended(caches, keys)):
            query = begin + row
            first = 0 if window is None else max(0, query - window + 1)
            assert visible == naive[first : query + 1]
        length = begin + round(kept_share * rows)
        caches.crop(length)
        assert caches.length == length


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("accepted", range(BLOCK + 1))
def test_nothing_a_rejected_row_held_is_left_in_the_next_block_not_even_nan(window: int | None, accepted: int) -> None:
    caches = static(window, 9)
    spoilt = rows_of(9, BLOCK)
    spoilt[:, :, accepted:] = float("nan")
    appended(caches, spoilt)
    caches.crop(9 + accepted)
    keys = rows_of(9 + accepted, 1)
    appended(caches, keys)
    # A masked weight of zero times NaN is NaN: the buffers themselves must be clean.
    assert all(torch.isfinite(side).all() for side in (caches.layers[0].keys, caches.layers[0].values))


def test_a_crop_far_back_leaves_nothing_behind_the_next_block() -> None:
    caches = static(None, 4)
    for begin in range(4, 40, BLOCK):
        appended(caches, torch.full((1, HEADS, BLOCK, DIM), float("nan")) if begin > 20 else rows_of(begin, BLOCK))
    caches.crop(5)
    assert appended(caches, rows_of(5, 2)) == [list(range(6)), list(range(7))]
    assert torch.isfinite(caches.layers[0].keys).all()


def test_a_sliding_layer_refuses_a_crop_to_rows_it_may_have_overwritten() -> None:
    caches = static(5, 30)
    with pytest.raises(CacheCropError, match="expected 30 <= length <= 30"):
        caches.crop(29)
    appended(caches, rows_of(30, 4))
    appended(caches, rows_of(34, 2))
    with pytest.raises(CacheCropError, match="expected 34 <= length <= 36"):
        caches.crop(33)


def test_another_sequences_rows_are_gone_when_a_slot_is_loaded_again() -> None:
    caches = static(None, 60)
    caches.load(Held({0: HeldRows(None, True, 0, rows_of(0, 3), -rows_of(0, 3))}, {}), 3)
    assert not caches.layers[0].keys[:, :, 3:].any()
    assert appended(caches, rows_of(3, 1)) == [[0.0, 1.0, 2.0, 3.0]]


@settings(max_examples=60, deadline=None)
@given(text=st.sampled_from(["native", "full"]), prefill=st.integers(1, 40), plan=turns)
def test_rows_move_out_of_a_slot_and_back_without_a_change(text, prefill, plan) -> None:
    windows, layout = (None, 5), CacheLayout.parse(text)
    growing = LayerCaches(windows, (DIM, DIM), layout)
    for layer in range(2):
        growing.update(rows_of(0, prefill), -rows_of(0, prefill), layer)
    caches = StaticCaches(growing.held().rows, CAPACITY, BLOCK)
    caches.load(growing.held(), growing.length)
    for rows, kept_share in plan:
        begin = caches.length
        with torch.inference_mode():
            caches.stand_at(rows)
            caches.begin(rows)
            for layer in range(2):
                caches.update(rows_of(begin, rows), -rows_of(begin, rows), layer)
        caches.crop(begin + round(kept_share * rows))
    left = LayerCaches(windows, (DIM, DIM), layout)
    left.resume(caches.held(), caches.floor)
    assert left.length == caches.length
    for crop in range(caches.length, caches.floor - 1, -1):
        left.crop(crop)
    end = left.length
    for layer, window in enumerate(windows):
        shown, values = left.update(rows_of(end, 2), -rows_of(end, 2), layer)
        first = 0 if window is None else max(0, end - window + 1)
        assert torch.equal(shown, rows_of(first, end + 2 - first))
        assert torch.equal(values, -shown)
