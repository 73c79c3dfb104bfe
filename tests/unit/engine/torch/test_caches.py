from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.torch.caches import (
    GROW_ROWS,
    attention_mask,
    make_cache,
)
from engine.backends.visibility import Visibility
from engine.errors import CacheCropError
from engine.structure.layout import CacheLayout

HEADS, DIM = 2, 3


class NaiveCache:
    """Keeps every row in a list and shows what a window allows."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.rows: list[torch.Tensor] = []

    def append(self, keys: torch.Tensor) -> torch.Tensor:
        begin = len(self.rows)
        self.rows += list(keys.unbind(2))
        first = 0 if self.window is None else max(0, begin - self.window + 1)
        return torch.stack(self.rows[first:], dim=2)

    def crop(self, length: int) -> None:
        del self.rows[length:]


@st.composite
def histories(draw: st.DrawFn) -> tuple[int | None, bool, list[tuple[int, float]]]:
    """A window, whether its cache keeps every row, and appends each followed by a crop of a share of its rows."""
    window = draw(st.none() | st.integers(1, 40))
    turns = draw(st.lists(st.tuples(st.integers(1, 70), st.floats(0, 1)), min_size=1, max_size=30))
    return window, draw(st.booleans()), turns


@settings(max_examples=150, deadline=None)
@given(histories())
def test_any_history_of_appends_and_crops_shows_exactly_the_rows_a_naive_cache_shows(history) -> None:
    window, every_row, turns = history
    cache = make_cache(window, CacheLayout.FULL if every_row else CacheLayout.NATIVE, DIM)
    naive = NaiveCache(window)
    generator = torch.Generator().manual_seed(0)
    for rows, kept_share in turns:
        begin = cache.length
        keys = torch.randn(1, HEADS, rows, DIM, generator=generator)
        shown_keys, shown_values = cache.append(keys, -keys)
        expected = naive.append(keys)
        assert torch.equal(shown_keys, expected)
        assert torch.equal(shown_values, -expected)
        length = begin + round(kept_share * rows)
        cache.crop(length)
        naive.crop(length)
        assert cache.length == length


def test_a_sink_and_window_cache_stops_growing() -> None:
    cache = make_cache(None, CacheLayout(sink=4, window=8), 2)
    sizes = set()
    for turn in range(60):
        rows = 1 + turn % 5
        cache.append(torch.zeros(1, 1, rows, 2), torch.zeros(1, 1, rows, 2))
        sizes.add(cache.measured_bytes())
    assert max(sizes) <= 2 * 2 * 4 * (4 + 7 + 5 + 2 * 16)
    with pytest.raises(CacheCropError, match="rows older than the last append are gone"):
        cache.crop(cache.length - 6)


def test_a_sliding_cache_returns_to_window_block_and_slack_after_a_long_prefill() -> None:
    window, block, row_bytes = 64, 8, 2 * 2 * 4
    cache = make_cache(window, CacheLayout.NATIVE, DIM)
    for _ in range(4):
        cache.append(torch.zeros(1, 2, 512, 2), torch.zeros(1, 2, 512, 2))
    held_while_prefilling = cache.measured_bytes()
    for _ in range(40):
        begin = cache.length
        cache.append(torch.zeros(1, 2, block, 2), torch.zeros(1, 2, block, 2))
        cache.crop(begin + 3)
        assert cache.measured_bytes() <= 2 * row_bytes * (window + 2 * cache.slack_rows)
    assert held_while_prefilling >= 2 * row_bytes * 512


def test_measured_bytes_are_those_of_the_storages() -> None:
    cache = make_cache(None, CacheLayout.NATIVE, DIM)
    assert cache.measured_bytes() == 0
    cache.append(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4))
    assert cache.measured_bytes() == 2 * 2 * GROW_ROWS * 4 * 4


@pytest.mark.parametrize("window", [None, 1, 4, 9])
@pytest.mark.parametrize("offset", [0, 1, 3, 4, 8, 9, 30])
@pytest.mark.parametrize("rows", [1, 2, 5, 12])
def test_the_mask_admits_exactly_causal_keys_within_the_window(rows: int, offset: int, window: int | None) -> None:
    first = 0 if window is None else max(0, offset - window + 1)
    mask = attention_mask(Visibility(((first, offset + rows),), rows, window), torch.device("cpu"))
    for row in range(rows):
        query = offset + row
        for column, key in enumerate(range(first, offset + rows)):
            allowed = key <= query and (window is None or query - key < window)
            if mask is not None:
                assert bool(mask[0, 0, row, column]) == allowed
            elif rows == 1:
                assert allowed
            else:
                # Without a mask torch takes a square one, causal from the start.
                assert offset == 0
                assert allowed == (key <= query)


def test_a_growing_cache_is_copied_a_few_times_and_not_every_few_rows() -> None:
    cache, buffers = make_cache(None, CacheLayout.NATIVE, DIM), set()
    for _ in range(2000):
        cache.append(torch.zeros(1, 1, 1, DIM), torch.zeros(1, 1, 1, DIM))
        buffers.add(cache.buffers()[0].shape[2])
    assert buffers == {64, 128, 256, 512, 1024, 2048}
