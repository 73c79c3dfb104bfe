"""How probable a model holds a given text, token by token, on the caches that it would be decoded with.

The text goes through the same forwards as a draft that is verified, in blocks, so a lossy cache or dtype costs here
what it costs an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.decoding.prompt import check_prompt
from engine.errors import PromptError
from engine.loading import Engine
from engine.structure.layout import CacheLayout
from engine.types import Draft

BLOCK_ROWS = 16
"""Rows of a forward: what every cache layout takes."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a text is worth.

    Attributes:
        first: position of the first token that is scored; those before it are its context.
        log_probabilities: in nats, of every token from there on given all before it.
    """

    first: int
    log_probabilities: tuple[float, ...]

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
    if not 1 <= first < len(ids):
        raise PromptError(f"{len(ids)} tokens with {first} of them as context; expected at least one of each")
    check_prompt(ids, engine.target.info)
    sequence = engine.target.open((), layout)
    found: list[float] = []
    with engine.resident():
        *_, last = sequence.prefill(ids[:first], chunk_tokens)
        found += engine.backend.log_probabilities(last, (ids[first],))
        # Each block's rows tell of the token behind each; the last token of the text tells of nothing.
        for start in range(first, len(ids) - 1, BLOCK_ROWS):
            rows = ids[start : min(start + BLOCK_ROWS, len(ids) - 1)]
            forward = sequence.forward_block(rows[0], Draft(tokens=rows[1:], count=len(rows) - 1))
            found += engine.backend.log_probabilities(forward, ids[start + 1 : start + 1 + len(rows)])
            sequence.crop(start + len(rows))
    if not all(map(math.isfinite, found)):
        at = next(index for index, value in enumerate(found) if not math.isfinite(value))
        raise PromptError(
            f"token {first + at} of the text has no finite probability under {engine.target.info.name!r}; use another "
            "--dtype"
        )
    return Score(first, tuple(found))
