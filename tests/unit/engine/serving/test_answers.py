"""Log probabilities as OpenAI's clients read them."""

from __future__ import annotations

import pytest

from engine.checkpoint import ASSETS
from engine.generation.score import Score
from engine.serving.answers import chat_logprobs, completion_logprobs
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


def test_a_part_of_a_character_has_no_bytes_that_are_another_character_s(tokenizer: Tokenizer) -> None:
    parts = tokenizer.encode("龘")[-2:]
    word = tokenizer.encode("class")[-1]
    assert "\ufffd" in tokenizer.decode(parts[-1:])
    tokens = (word, *parts)
    score = Score(1, (-0.5,) * len(tokens), ((word, -0.5),) * len(tokens))
    content = chat_logprobs(tokenizer, tokens, score, top=True)["content"]
    assert [entry["bytes"] for entry in content] == [list(tokenizer.decode([word]).encode()), None, None]
    assert all(entry["top_logprobs"][0]["bytes"] for entry in content)
