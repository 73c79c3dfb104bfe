"""Contexts that an f_theta is fitted on: code with secret codes hidden in it, and a question about one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import UsageError
from engine.training.corpus import SourceFile, WordPool
from engine.training.needles import hide, make_needles
from engine.training.rows import encode
from engine.training.tokenizer import BOS_ID, SPECIAL_TOKENS

NEEDLES_MOST = 4
LEAST_ROOM = 16
"""Tokens of code that codes are hidden in, at least."""
FILES_MOST = 80
"""Files that contexts are cut from: of more of them every so many."""


@dataclass(frozen=True)
class Episode:
    """Token ids of a context, of the question behind it, and of the answer."""

    context: tuple[int, ...]
    question: tuple[int, ...]
    answer: tuple[int, ...]


class Episodes:
    """Draws episodes of either side of the corpus; the same seed and number give the same episode."""

    def __init__(self, tokenizer: Any, files: tuple[SourceFile, ...], words: WordPool, *, held_out: bool) -> None:
        """Encode one side of the corpus; its words are of the same side."""
        self._tokenizer = tokenizer
        self._words = words.held_out if held_out else words.training
        side = [file.text for file in files if file.held_out == held_out]
        kept = side[:: -(-len(side) // FILES_MOST)]
        encoded = tokenizer.encode_batch(kept, add_special_tokens=False)
        self._filler = [token for item in encoded for token in item.ids]
        vocabulary = range(len(SPECIAL_TOKENS), tokenizer.get_vocab_size())
        self._newlines = frozenset(token for token in vocabulary if tokenizer.decode([token]).startswith("\n"))

    def episode(self, seed: int, number: int, length: int, needles: int | None = None) -> Episode:
        """Return an episode whose context and question have ``length`` tokens, give or take a line.

        Args:
            seed: Of all episodes.
            number: Which one.
            length: Tokens.
            needles: Codes that are hidden; None draws how many.

        Raises:
            UsageError: If nothing could be hidden in so few tokens, or there is not so much code.
        """
        rng = np.random.default_rng([seed, number, length])
        count = int(rng.integers(1, NEEDLES_MOST + 1)) if needles is None else needles
        made = make_needles(rng, self._words, count)
        lines = [encode(self._tokenizer, needle.note) for needle in made]
        question = encode(self._tokenizer, made[0].question)
        room = length - 1 - len(question) - sum(map(len, lines))
        if not LEAST_ROOM <= room < len(self._filler):
            taken = length - room
            raise UsageError(
                f"contexts of {length} tokens, of which codes and question take {taken}; expected {taken + LEAST_ROOM} "
                f"to {taken + len(self._filler) - 1} (--length)"
            )
        start = int(rng.integers(0, len(self._filler) - room))
        depths = [float(depth) for depth in rng.random(len(lines))]
        body = hide(self._filler[start : start + room], lines, depths, self._newlines)
        return Episode((BOS_ID, *body), tuple(question), tuple(encode(self._tokenizer, made[0].answer)))
