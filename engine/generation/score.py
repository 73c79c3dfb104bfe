"""How probable a model holds a given text, token by token, on the caches that it would be decoded with.

The text goes through the same forwards as a draft that is verified, in blocks, so a lossy cache or dtype costs here
what it costs an answer.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

from engine.decoding.prompt import check_prompt
from engine.errors import PromptError
from engine.loading import Engine
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward

BLOCK_ROWS = 16
"""Rows of a forward, fewer where a cache layout takes no such block."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a text is worth.

    Attributes:
        first: position of the first token that is scored; those before it are its context.
        log_probabilities: in nats, of every token from there on given all before it.
        likeliest: the id that the model holds likeliest in the place of each of them, and its log probability.
    """

    first: int
    log_probabilities: tuple[float, ...]
    likeliest: tuple[tuple[int, float], ...] = ()

    @property
    def nats(self) -> float:
        """Nats a token on average: the cross entropy of the text under the model."""
        return -math.fsum(self.log_probabilities) / len(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """What a model that is as unsure at every token chooses among."""
        return math.exp(min(self.nats, 700.0))


def score(engine: Engine, ids: tuple[int, ...], layout: CacheLayout, first: int = 1, chunk_tokens: int = 512) -> Score:
    """Return the log probabilities of a text.

    Args:
        engine: The loaded model; its drafter plays no part.
        ids: Of the text, context included.
        layout: Of the caches.
        first: Position of the first token to score; what lies before is a prompt.
        chunk_tokens: Prompt rows a forward.

    Raises:
        PromptError: If nothing is left to score, or the text does not fit the model.
    """
    forwards = scoring(engine, ids, layout, first, chunk_tokens)
    while True:
        try:
            next(forwards)
        except StopIteration as end:
            whole: Score = end.value
            return whole


def scoring(
    engine: Engine, ids: tuple[int, ...], layout: CacheLayout, first: int = 1, chunk_tokens: int = 512
) -> Generator[None, None, Score]:
    """Score as `score` does, a forward at a time, so that a caller may do other work between them.

    Raises:
        PromptError: If nothing is left to score, or the text does not fit the model.
    """
    if not 1 <= first < len(ids):
        raise PromptError(f"{len(ids)} tokens with {first} of them as context; expected at least one of each")
    info = engine.target.info
    if len(ids) > info.max_positions:
        room = f"{info.name!r} holds {info.max_positions} positions"
        raise PromptError(f"the text has {len(ids)} tokens; {room}. Shorten it.")
    for part in (ids[:-1], ids[-1:]):  # the last token is scored and not forwarded, so it needs no place behind it
        check_prompt(part, info)
    sequence = engine.target.open((), layout)
    block_rows = min(BLOCK_ROWS, layout.block_rows or BLOCK_ROWS)
    values: list[float] = []
    likeliest: list[tuple[int, float]] = []

    def read(forward: Forward, tokens: tuple[int, ...]) -> None:
        best = engine.backend.likeliest(forward)
        values.extend(engine.backend.log_probabilities(forward, tokens))
        likeliest.extend(zip(best, engine.backend.log_probabilities(forward, best), strict=True))

    with engine.resident():
        last: Forward | None = None
        for forward in sequence.prefill(ids[:first], chunk_tokens):
            last = forward
            yield
        if last is not None:  # `first` is one at least
            read(last, (ids[first],))
        # Each block's rows tell of the token behind each; the last token of the text tells of nothing.
        for start in range(first, len(ids) - 1, block_rows):
            rows = ids[start : min(start + block_rows, len(ids) - 1)]
            forward = sequence.forward_block(rows[0], Draft(tokens=rows[1:], count=len(rows) - 1))
            read(forward, ids[start + 1 : start + 1 + len(rows)])
            sequence.crop(start + len(rows))
            yield
    if not all(map(math.isfinite, values)):
        at = next(index for index, value in enumerate(values) if not math.isfinite(value))
        raise PromptError(
            f"token {first + at} of the text has no finite probability under {engine.target.info.name!r}; use another "
            "--dtype"
        )
    return Score(first, tuple(values), tuple(likeliest))
