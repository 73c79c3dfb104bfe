"""Structured documents are Python whose header decides what follows."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from engine.training.structured import FAMILIES, make_document

WORDS = tuple(f"{a}{b}word" for a in "abcdef" for b in "klmnop")


@pytest.mark.parametrize("seed", range(200))
def test_every_document_is_valid_python_and_uses_every_member(seed):
    document = make_document(np.random.default_rng(seed), WORDS, held_out=bool(seed % 2))
    text = document.prompt + document.completion
    ast.parse(text)
    header = document.prompt.split(": ", 1)[1].split(".\n", 1)[0]
    for member in header.split(", "):
        assert member in document.completion


@pytest.mark.parametrize("seed", range(20))
def test_the_header_lists_the_parts_in_the_order_they_follow(seed):
    document = make_document(np.random.default_rng(seed), WORDS, held_out=False, sections=3, members=2)
    family, parts = document.template.split(":")
    assert ", ".join(parts.split(",")) in document.prompt
    assert list(FAMILIES[family][0]).index(parts.split(",")[0]) < list(FAMILIES[family][0]).index(parts.split(",")[-1])


def test_a_held_out_template_of_one_part_is_refused_instead_of_sought_for_ever():
    with pytest.raises(ValueError, match="at least 2"):
        make_document(np.random.default_rng(0), WORDS, held_out=True, sections=1)


def test_more_members_make_a_longer_completion():
    few = make_document(np.random.default_rng(1), WORDS, held_out=False, sections=4, members=2)
    many = make_document(np.random.default_rng(1), WORDS, held_out=False, sections=4, members=8)
    assert len(many.completion) > 2 * len(few.completion)


def test_a_prompt_encodes_to_the_first_tokens_of_its_document():
    from engine.training.tokenizer import train_tokenizer

    rng = np.random.default_rng(5)
    documents = [make_document(rng, WORDS, held_out=False) for _ in range(60)]
    tokenizer = train_tokenizer([item.prompt + item.completion for item in documents], vocab_size=400)
    for item in documents:
        prompt, whole = tokenizer.encode(item.prompt).ids, tokenizer.encode(item.prompt + item.completion).ids
        assert whole[: len(prompt)] == prompt


def test_a_listed_header_spells_every_member_with_and_without_a_leading_space():
    document = make_document(np.random.default_rng(3), WORDS, held_out=False, members=4)
    plain = make_document(np.random.default_rng(3), WORDS, held_out=False, listed=False, members=4)
    for member in document.prompt.split(": ", 1)[1].split(".\n", 1)[0].split(", "):
        assert f'"{member}"' in document.prompt
    assert '"' not in plain.prompt.replace('"""', "")


def test_regular_words_are_short_for_the_tokenizer_in_both_spellings():
    from engine.training.structured import regular_words
    from engine.training.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["alpha alpha = alpha"] * 50, vocab_size=300)
    assert regular_words(tokenizer, ("alpha", "zyxwvut")) == ("alpha",)
