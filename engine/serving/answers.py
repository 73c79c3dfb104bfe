"""What a client gets: bodies and chunks in OpenAI's form."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.generation.channels import Channels
from engine.generation.score import Score
from engine.generation.text_stream import ENDING_TOKENS, INCOMPLETE, Decode, Pieces, read_behind
from engine.serving.streams import Finished
from engine.tokenizer import Tokenizer


def envelope(
    kind: str, number: str, model: str, choices: Sequence[Mapping[str, Any]], created: int | None = None
) -> dict[str, Any]:
    """Return a body around choices, ``created`` at this second of Unix time unless another is said."""
    second = int(time.time()) if created is None else created
    return {"id": number, "object": kind, "created": second, "model": model, "choices": list(choices)}


def usage(ends: Sequence[Finished], prompt_tokens: Sequence[int], exact: str) -> dict[str, Any]:
    """Return what the answers of one body took.

    Args:
        ends: of each prompt.
        prompt_tokens: of each prompt.
        exact: what the tokens are equal to, in a word.
    """
    answers = [end.answer for end in ends if end.answer is not None]
    written = sum(len(answer.tokens) for answer in answers)
    return {
        "prompt_tokens": sum(prompt_tokens),
        "completion_tokens": written,
        "total_tokens": sum(prompt_tokens) + written,
        "prompt_tokens_details": {"cached_tokens": sum(answer.reused_tokens for answer in answers)},
        "drafted_tokens": sum(answer.drafted_tokens for answer in answers),
        "accepted_tokens": sum(answer.accepted_tokens for answer in answers),
        "target_forwards": sum(answer.target_forwards for answer in answers),
        "exact": exact,
    }


def completion_logprobs(
    tokenizer: Tokenizer, prompt: tuple[int, ...], answer: tuple[int, ...], score: Score | None, *, echo: bool
) -> dict[str, Any]:
    """Return the log probabilities of a completion, token by token; the first token of an echoed text has none.

    Each token is the text that it adds, so that all of them are the text, and offsets count in it.
    """
    whole, begin = (*prompt, *answer), 0 if echo else len(prompt)
    first = len(whole) if score is None else score.first  # a token alone has nothing that tells of it
    values = () if score is None else score.log_probabilities
    best = () if score is None else score.likeliest
    unscored: list[Any] = [None] * (first - begin)
    texts = _added(tokenizer.decode, prompt) if echo else []
    texts += _added(read_behind(tokenizer.decode, prompt), answer)
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    tops: list[Any] = [
        _top(_behind(tokenizer.decode, whole, place), token, text, own, other)
        for place, (token, text, own, other) in enumerate(
            zip(whole[first:], texts[first - begin :], values, best, strict=True), first
        )
    ]
    return {
        "tokens": texts,
        "token_logprobs": [*unscored, *values],
        "top_logprobs": [*unscored, *tops],
        "text_offset": offsets[:-1],
    }


def _added(decode: Decode, tokens: tuple[int, ...]) -> list[str]:
    """Return what each token adds to the text; one inside of a character adds nothing until that is whole."""
    texts: list[str] = []
    pieces = Pieces(decode, (), texts.append)
    for count, token in enumerate(tokens, 1):
        pieces.add((token,), final=count == len(tokens))
        texts += [""] * (count - len(texts))
    return texts


def _behind(decode: Decode, tokens: tuple[int, ...], place: int) -> Decode:
    """Return what reads a token as the text that it adds at a place among tokens."""
    return read_behind(decode, tokens[max(0, place - ENDING_TOKENS) : place])


def _top(decode: Decode, token: int, text: str, own: float, likeliest: tuple[int, float]) -> dict[str, float]:
    """Return the log probabilities of a token and of the likeliest one; another of the same text is named by its id."""
    other, value = likeliest
    if other == token:
        return {text: value}
    name = decode([other])
    return {text: own, f"token_id:{other}" if name == text else name: value}


def chat_logprobs(tokenizer: Tokenizer, tokens: tuple[int, ...], score: Score | None, *, top: bool) -> dict[str, Any]:
    """Return the log probabilities of a message's tokens, each token as the text that it adds to those before it."""
    if score is None:
        return {"content": []}
    reading = partial(tokenizer.decode, written=Channels.of(tokenizer).written)
    entries: list[dict[str, Any]] = []
    for place, (value, best) in enumerate(zip(score.log_probabilities, score.likeliest, strict=True)):
        decode = _behind(reading, tokens, place)
        likeliest = [_entry(decode, *best)] if top else []
        entries.append(_entry(decode, tokens[place], value) | {"top_logprobs": likeliest})
    return {"content": entries}


def _entry(decode: Decode, token: int, value: float) -> dict[str, Any]:
    text = decode([token])
    # A part of a character decodes to what stands for one: its own bytes are not in the text.
    return {"token": text, "logprob": value, "bytes": None if INCOMPLETE in text else list(text.encode())}
