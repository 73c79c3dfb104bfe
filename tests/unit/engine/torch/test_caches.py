from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.rows import stored_errors
from engine.backends.torch.caches import (
    GROW_ROWS,
    attention_mask,
    full_cache,
    make_cache,
    next_mask,
    sink_window_cache,
    window_cache,
)
from engine.backends.torch.rows import LIBRARY, Affine, squared
from engine.errors import CacheCropError
from engine.types import CacheLayout

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
    cache = full_cache(window) if window is None or every_row else window_cache(window)
    naive = NaiveCache(window)
    generator = torch.Generator().manual_seed(0)
    for rows, kept_share in turns:
        begin = cache.length
        keys = torch.randn(1, HEADS, rows, DIM, generator=generator)
        shown_keys, shown_values = cache.append(keys, -keys)
        expected = naive.append(keys)
        assert torch.equal(shown_keys, expected)
        assert torch.equal(shown_values, -expected)
        kept = begin + round(kept_share * rows)
        cache.crop(kept)
        naive.crop(kept)
        assert cache.length == kept


def visible(mask: torch.Tensor | None, rows: int, begin: int, shown: torch.Tensor) -> list[list[float]]:
    """Return for each new row the key values its attention can see."""
    keys, seen = shown[0, 0, :, 0].tolist(), []
    for row in range(rows):
        allowed = [True] * len(keys)
        if mask is not None:
            allowed = mask[0, 0, row].tolist()
        elif rows > 1:
            # Without a mask torch takes a square one, causal from the start.
            assert begin == 0
            allowed = [column <= row for column in range(len(keys))]
        seen.append([key for key, fine in zip(keys, allowed, strict=True) if fine])
    return seen


LAYOUTS = ["native", "full", "affine8", "affine4/4", "sink0+window5", "sink3+window1", "sink4+window9"]
turns = st.lists(st.tuples(st.integers(1, 12), st.floats(0, 1)), min_size=1, max_size=25)


@settings(max_examples=120, deadline=None)
@given(window=st.sampled_from([None, None, 1, 2, 5, 8, 17]), layout=st.sampled_from(LAYOUTS), plan=turns)
def test_every_row_of_every_layout_sees_what_a_cache_that_keeps_everything_would_show(window, layout, plan) -> None:
    rules = CacheLayout.parse(layout)
    cache = make_cache(window, rules, 4)
    # A quantised cache shows what one row, coded by itself, reads back as.
    codec = None if rules.bits is None else Affine(rules.bits, rules.group_of(4))
    sink, bound = (rules.sink, rules.window) if window is None else (0, window)
    history: list[float] = []
    generator = torch.Generator().manual_seed(1)
    for rows, kept_share in plan:
        before = cache.length
        fresh = torch.randn(1, HEADS, rows, 4, generator=generator)
        mask = next_mask(cache, rows, torch.device("cpu"))
        keys, values = cache.append(fresh, -fresh)
        stored = [codec.decode(codec.encode(row)) if codec else row for row in fresh.split(1, dim=2)]
        history = history[:before] + [row[0, 0, 0, 0].item() for row in stored]
        assert codec or torch.equal(values, -keys)
        for row, seen in enumerate(visible(mask, rows, before, keys)):
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
def test_codes_are_within_half_a_step_of_the_value(bits, group, values) -> None:
    rows = torch.tensor(values).reshape(1, 1, 2, 8)
    codec = Affine(bits, group)
    parts = codec.encode(rows)
    assert parts[0].dtype == torch.uint8
    assert parts[0].shape[-1] == 8 * bits // 8
    exact, back = rows.reshape(-1, group), codec.decode(parts).reshape(-1, group)
    step = (exact.amax(-1) - exact.amin(-1)) / (2**bits - 1)
    assert bool(((back - exact).abs() <= step[:, None] / 2 + 1e-4 * exact.abs().clamp(min=1.0)).all())


def test_the_error_of_storing_is_summed_over_every_value() -> None:
    rows = torch.randn(1, HEADS, 30, 8, generator=torch.Generator().manual_seed(0))
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
        rows = torch.randn(1, HEADS, 300, 32)
        cache.append(rows, rows)
        held.append(cache.measured_bytes())
    assert held[1] == held[0] * share


def test_a_sink_and_window_cache_stops_growing() -> None:
    cache = sink_window_cache(4, 8)
    held = set()
    for turn in range(60):
        rows = 1 + turn % 5
        cache.append(torch.zeros(1, 1, rows, 2), torch.zeros(1, 1, rows, 2))
        held.add(cache.measured_bytes())
    assert max(held) <= 2 * 2 * 4 * (4 + 7 + 5 + 2 * 16)
    with pytest.raises(CacheCropError, match="rows older than the last append are gone"):
        cache.crop(cache.length - 6)


def test_a_crop_before_the_last_append_is_refused_instead_of_wrong() -> None:
    cache = window_cache(8)
    for rows in (20, 5):
        cache.append(torch.zeros(1, 1, rows, 2), torch.zeros(1, 1, rows, 2))
    with pytest.raises(CacheCropError, match="crop of a sliding cache to 19 positions; expected 20 <= length <= 25"):
        cache.crop(19)
    with pytest.raises(CacheCropError, match="26"):
        cache.crop(26)
    cache.crop(20)


def test_a_full_cache_refuses_lengths_it_never_reached() -> None:
    cache = full_cache()
    cache.append(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    for length in (-1, 4):
        with pytest.raises(CacheCropError, match="expected 0 <= length <= 3"):
            cache.crop(length)


def test_a_sliding_cache_returns_to_window_block_and_slack_after_a_long_prefill() -> None:
    window, block, row_bytes = 64, 8, 2 * 2 * 4
    cache = window_cache(window)
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
    cache = full_cache()
    assert cache.measured_bytes() == 0
    cache.append(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4))
    assert cache.measured_bytes() == 2 * 2 * GROW_ROWS * 4 * 4


@pytest.mark.parametrize("window", [None, 1, 4, 9])
@pytest.mark.parametrize("offset", [0, 1, 3, 4, 8, 9, 30])
@pytest.mark.parametrize("rows", [1, 2, 5, 12])
def test_the_mask_admits_exactly_causal_keys_within_the_window(rows: int, offset: int, window: int | None) -> None:
    mask = attention_mask(rows, offset, window, torch.device("cpu"))
    first = 0 if window is None else max(0, offset - window + 1)
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
