"""Log probabilities as OpenAI's clients read them."""

from __future__ import annotations

import pytest

from engine.checkpoint import ASSETS
from engine.serving.answers import completion_logprobs
from engine.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(ASSETS / "kakeya-tiny-gemma4")


def test_a_prompt_of_one_token_is_echoed_with_no_probability(tokenizer: Tokenizer) -> None:
    token = tokenizer.encode("class")[-1]
    scores = completion_logprobs(tokenizer, (token,), (), None, echo=True)
    assert scores["tokens"] == [tokenizer.decode([token])]
    assert scores["token_logprobs"] == scores["top_logprobs"] == [None]
    assert scores["text_offset"] == [0]
