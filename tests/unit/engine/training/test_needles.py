"""Needles are hidden at line breaks, whole, and once each."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.training.corpus import SourceFile, WordPool
from engine.training.needles import hide, make_needles
from engine.training.recipe import Mix, Stage
from engine.training.rows import ANSWER_WEIGHT, RowSource
from engine.training.structured import make_document
from engine.training.tokenizer import train_tokenizer

NEWLINE = 0
NEEDLES = Mix(copy=0.0, needle=1.0, code=0.0, structured=0.0)
WORDS = tuple(f"{a}{b}word" for a in "abcdef" for b in "klmnop")


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


@pytest.fixture(scope="module")
def source():
    rng = np.random.default_rng(3)
    documents = [make_document(rng, WORDS, held_out=False) for _ in range(40)]
    texts = [item.prompt + item.completion for item in documents]
    needles = make_needles(rng, WORDS, 20)
    spoken = [needle.note + needle.question + needle.answer for needle in needles]
    files = tuple(SourceFile(f"{index}.py", "", text, held_out=False) for index, text in enumerate(texts))
    return RowSource(train_tokenizer([*texts, *spoken * 20], 600), files, WordPool(WORDS, ()), seed=0, documents=2)


@pytest.mark.parametrize("length", [72, 512])
def test_a_row_of_needles_is_as_long_as_asked_where_few_episodes_fit(source, length):
    batch = source.batch(Stage(1.0, 16, length, NEEDLES), step=0)
    assert batch.ids.shape == (16, length + 1)
    assert (batch.weights == ANSWER_WEIGHT).any(axis=1).all()


def test_of_a_row_of_needles_the_answers_alone_weigh_most(source):
    batch = source.batch(Stage(1.0, 16, 512, NEEDLES), step=0)
    for ids, weights in zip(batch.ids, batch.weights, strict=True):
        text = source.tokenizer.decode(ids[1:][weights == ANSWER_WEIGHT].tolist())
        assert re.fullmatch(r"( the secret code for [a-z ]+ is [0-9]{4,6}\.)+", text), text


def test_of_a_row_of_copies_no_loss_is_taken_over_what_cannot_be_known(source):
    batch = source.batch(Stage(1.0, 16, 128, Mix(copy=1.0, needle=0.0, code=0.0, structured=0.0)), step=0)
    assert 0.0 < batch.weights.mean() < 1.0
    for ids, weights in zip(batch.ids.tolist(), batch.weights.tolist(), strict=True):
        for place in (place for place, weight in enumerate(weights) if weight):
            # What is predicted stood behind the same token earlier in the row.
            assert (ids[place], ids[place + 1]) in pairwise(ids[: place + 1])


def test_a_row_that_no_episode_fits_is_one_line(source):
    with pytest.raises(UsageError, match=r"fits a row of 24 tokens; the shortest needs \d+\. Give") as caught:
        source.batch(Stage(1.0, 1, 24, NEEDLES), step=0)
    assert "\n" not in str(caught.value)
