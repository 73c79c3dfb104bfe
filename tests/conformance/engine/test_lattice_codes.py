"""Codes of D4 and E8 read back as the nearest point of all, found by looking at every point around."""

from __future__ import annotations

import sys
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.lattices import LATTICES
from engine.backends.rows import stored_errors
from engine.structure.layout import CacheLayout
from tests.conformance.engine.row_libraries import RowLibrary, library

ROWS, DIM = 3, 16


@pytest.fixture(params=["mlx", "torch"], scope="module")
def row_library(request: pytest.FixtureRequest) -> RowLibrary:
    return library(request.param)


@cache
def around(size: int) -> np.ndarray:
    return np.array(list(product(range(-1, 3), repeat=size)), dtype=np.float32)


def nearest(name: str, block: np.ndarray) -> np.ndarray:
    """Return the nearest point by distance alone: no point of these lattices is nearer than all within 1 of a value."""
    shifts = (0.0,) if name == "d4" else (0.0, 0.5)
    points = np.concatenate([np.floor(block - shift) + around(len(block)) + shift for shift in shifts])
    points = points[points.sum(axis=-1) % 2 == 0]
    return points[((points - block) ** 2).sum(axis=-1).argmin()]


def drawn(seed: int, spread: float, count: int = ROWS) -> np.ndarray:
    """Return rows of which some values are far larger than the rest."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((1, 2, count, DIM)) * spread
    return (rows * np.where(rng.random(rows.shape) < 0.1, 8, 1)).astype(np.float32)


def codec_of(row_library: RowLibrary, layout: str) -> Any:
    return row_library.rows.LIBRARY.codec(CacheLayout.parse(layout), DIM)


@settings(max_examples=8, deadline=None)
@given(
    name=st.sampled_from(["d4", "e8"]),
    bits=st.sampled_from([4, 8]),
    seed=st.integers(0, 999),
    spread=st.sampled_from([1e-3, 1.0, 300.0]),
)
def test_a_row_reads_back_as_its_nearest_points_times_the_scale(row_library, name, bits, seed, spread) -> None:
    rows = drawn(seed, spread, 1)
    codec = codec_of(row_library, f"{name}x{bits}/8")
    codes, scale = codec.encode(row_library.array(rows.tolist()))
    assert (codes.shape[-1], scale.shape[-1]) == (DIM * bits // 8, DIM // 8)
    back = np.array(codec.decode((codes, scale)).tolist(), np.float32)
    wide = np.repeat(np.array(scale.tolist(), np.float32), 8, axis=-1)
    size = LATTICES[name].block
    for got, exact, step in zip(*(side.reshape(-1, size) for side in (back, rows, wide)), strict=True):
        best = nearest(name, exact / step)
        # Of two points as far away either is right.
        far = np.linalg.norm(got / step - exact / step), np.linalg.norm(best - exact / step)
        assert far[0] == pytest.approx(far[1], abs=1e-3)


@pytest.mark.parametrize("layout", ["d4x4", "e8x4", "d4x8/4", "e8x8/8"])
def test_rows_alone_read_back_as_in_a_block_and_zeros_as_zeros(row_library, layout: str) -> None:
    codec, rows = codec_of(row_library, layout), row_library.array(drawn(1, 1.0).tolist())
    whole = codec.decode(codec.encode(rows)).tolist()
    alone = [codec.decode(codec.encode(rows[:, :, row : row + 1])).tolist() for row in range(ROWS)]
    assert [[[row[0][head][0] for row in alone] for head in range(2)]] == whole
    assert codec.decode(codec.encode(rows * 0)).tolist() == (rows * 0).tolist()


def test_in_the_same_bytes_lattices_lose_less_than_single_values(row_library) -> None:
    rows = row_library.array(np.random.default_rng(3).standard_normal((1, 2, 200, 64)).tolist())
    errors = {}
    for text in ("affine4", "d4x4/32", "e8x4/32", "e8x8"):
        error, _ = stored_errors(
            [(rows, rows)], CacheLayout.parse(text), row_library.rows.LIBRARY, row_library.rows.squared
        )
        errors[text] = error
    assert errors["e8x4/32"].error_sq < errors["d4x4/32"].error_sq < errors["affine4"].error_sq
    assert [error.bits for error in errors.values()] == [5.0, 5.0, 5.0, 8.5]
    assert errors["e8x8"].error_sq * 100 < errors["e8x4/32"].error_sq


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scales_rounded_to_half_precision_still_hold_every_block(row_library, dtype: str) -> None:
    rows = drawn(5, 1.0)
    wide = row_library.array(rows.tolist())
    short = row_library.rows.LIBRARY.arithmetic.cast(wide, getattr(sys.modules[type(wide).__module__], dtype))
    for text in ("d4x8", "e8x8"):
        codec = codec_of(row_library, text)
        back = np.array(codec.decode(codec.encode(short)).tolist())
        assert np.abs(back - rows).max() < 0.05 * np.abs(rows).max()
