"""Needles are hidden at line breaks, whole, and once each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.training.needles import hide, make_needles

NEWLINE = 0


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_hiding_keeps_the_filler_and_every_line(filler, depths):
    lines = [[100 + index, 200 + index] for index in range(len(depths))]
    mixed = hide(filler, lines, depths, frozenset({NEWLINE}))
    assert [token for token in mixed if token < 100] == filler
    for line in lines:
        places = [i for i in range(len(mixed) - 1) if mixed[i : i + 2] == line]
        assert len(places) == 1
        after = mixed[places[0] + 2] if places[0] + 2 < len(mixed) else NEWLINE
        assert after == NEWLINE or after >= 100


def test_a_deeper_needle_comes_later():
    filler = [NEWLINE, 1, 1] * 30
    mixed = hide(filler, [[100], [200]], [0.9, 0.1], frozenset({NEWLINE}))
    assert mixed.index(200) < mixed.index(100)


def test_keys_are_distinct_and_codes_have_four_to_six_digits():
    needles = make_needles(np.random.default_rng(2), ("left", "right", "upper"), 5)
    assert len({needle.key for needle in needles}) == 5
    assert all(needle.code.isdigit() and 4 <= len(needle.code) <= 6 for needle in needles)
    assert all(needle.key in needle.question and needle.code in needle.answer for needle in needles)
