"""Log probabilities as OpenAI's clients read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checkpoint import ASSETS
from engine.generation.score import Score
from engine.serving.answers import chat_logprobs, completion_logprobs
from engine.tokenizer import Tokenizer
from tests.fakes.tokenizers_of_families import KINDS, write_tokenizer


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


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_an_echoed_completion_are_its_text_and_begin_where_it_is_said(tmp_path: Path, kind: str) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, kind))
    words = [tuple(reading.encode(word)) for word in ("free", " 龘", " human", " in")]
    prompt, answer = words[0] + words[1], words[2] + words[3]
    count = len(prompt) + len(answer) - 1
    score = Score(1, (-0.5,) * count, tuple((token, -0.5) for token in (*prompt, *answer)[1:]))
    scores = completion_logprobs(reading, prompt, answer, score, echo=True)
    whole = reading.decode((*prompt, *answer))
    assert "".join(scores["tokens"]) == whole
    assert "龘" in whole
    assert all(whole.startswith(*place) for place in zip(scores["tokens"], scores["text_offset"], strict=True))
    alone = completion_logprobs(reading, prompt, answer, None, echo=False)["tokens"]
    assert alone == scores["tokens"][len(prompt) :]


@pytest.mark.parametrize("kind", KINDS)
def test_a_likelier_token_is_named_by_the_text_that_it_would_add(tmp_path: Path, kind: str) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, kind))
    prompt, (token, *_), (other, *_) = (tuple(reading.encode(word)) for word in ("free", " human", " in"))
    score = Score(len(prompt), (-2.0,), ((other, -0.1),))
    (top,) = completion_logprobs(reading, prompt, (token,), score, echo=False)["top_logprobs"]
    whole = reading.decode(prompt)
    assert {whole + text for text in top} == {reading.decode((*prompt, each)) for each in (token, other)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_a_message_are_its_text(tmp_path: Path, kind: str) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, kind))
    tokens = tuple(token for word in ("free", " human", " in") for token in reading.encode(word))
    score = Score(1, (-0.5,) * len(tokens), tuple((token, -0.5) for token in tokens))
    content = chat_logprobs(reading, tokens, score, top=True)["content"]
    assert "".join(entry["token"] for entry in content) == reading.decode(tokens)
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in content)


def test_two_tokens_of_one_text_have_a_probability_each(tokenizer: Tokenizer) -> None:
    prompt, (other, token) = tokenizer.encode("class"), tokenizer.encode("龘")[-2:]
    scores = completion_logprobs(tokenizer, prompt, (token,), Score(len(prompt), (-2.0,), ((other, -0.1),)), echo=False)
    (top,) = scores["top_logprobs"]
    assert top[scores["tokens"][0]] == -2.0
    assert sorted(top.values()) == [-2.0, -0.1]
