"""Training rows: copies, needle episodes, code and structured documents, drawn from a seed and a step number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import UsageError
from engine.training.corpus import SourceFile, WordPool
from engine.training.needles import hide, make_needles
from engine.training.recipe import Mix, Stage
from engine.training.structured import Document, make_document, regular_words
from engine.training.tokenizer import BOS_ID, EOS_ID, SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STRUCTURED_DOCUMENTS = 12_000
FILLER_WEIGHT = 0.3
ANSWER_WEIGHT = 4.0
LEAST_FILLER = 8
"""Tokens of code that needles are hidden in, at least."""
NEEDLE_DRAWS = 1000
"""Episodes drawn for one row before its length is taken for too short."""
FloatRow = np.ndarray
IntRow = np.ndarray


@dataclass(frozen=True)
class Batch:
    """Rows of token ids [rows, length + 1] and the loss weights [rows, length] of predicting all but the first."""

    ids: IntRow
    weights: FloatRow


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode `text` without special tokens."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


class RowSource:
    """Draws training rows; equal arguments and step numbers give equal rows."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        files: tuple[SourceFile, ...],
        words: WordPool,
        seed: int,
        documents: int = STRUCTURED_DOCUMENTS,
    ) -> None:
        """Encode the training side of the corpus and the structured documents once."""
        self.tokenizer = tokenizer
        self.words = words.training
        self.seed = seed
        texts = [file.text for file in files if not file.held_out]
        encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
        self.files = [np.array([*item.ids, EOS_ID], dtype=np.uint16) for item in encoded if len(item.ids) > 16]
        self.starts = np.cumsum([0] + [len(item) for item in self.files])
        self.code = np.concatenate(self.files)
        rng = np.random.default_rng([seed, 1])
        made = [make_document(rng, words.training, held_out=False, listed=False) for _ in range(documents)]
        self.documents = {False: self._encoded(made)}
        rng, regular = np.random.default_rng([seed, 5]), regular_words(tokenizer, words.training)
        made = [make_document(rng, regular, held_out=False) for _ in range(documents)]
        self.documents[True] = self._encoded(made)
        vocabulary = tokenizer.get_vocab_size()
        self.newlines = frozenset(
            i for i in range(len(SPECIAL_TOKENS), vocabulary) if tokenizer.decode([i]).startswith("\n")
        )
        self.vocabulary = vocabulary

    def _encoded(self, documents: list[Document]) -> list[list[int]]:
        texts = [document.prompt + document.completion for document in documents]
        return [[*item.ids, EOS_ID] for item in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def batch(self, stage: Stage, step: int, stream: int = 2) -> Batch:
        """Return the batch of `step` under `stage`."""
        rng = np.random.default_rng([self.seed, stream, step])
        mix: Mix = stage.mix
        makers = (
            self._copy_row,
            self._needle_row,
            self._code_row,
            self._listed_row if stage.listed else self._unlisted_row,
        )
        kinds = rng.choice(4, size=stage.rows, p=[mix.copy, mix.needle, mix.code, mix.structured])
        rows = [makers[kind](rng, stage.length) for kind in kinds]
        return Batch(
            np.stack([np.asarray(ids[: stage.length + 1], dtype=np.int64) for ids, _ in rows]),
            np.stack([np.asarray(weights[1 : stage.length + 1], dtype=np.float32) for _, weights in rows]),
        )

    def code_ids(self, rng: np.random.Generator, length: int) -> list[int]:
        """Return `length` token ids of training files, every fifth time from the start of a file."""
        if rng.random() < 0.2:
            start = int(self.starts[rng.integers(0, len(self.files))])
        else:
            start = int(rng.integers(0, len(self.code) - length))
        start = min(start, len(self.code) - length)
        return [int(i) for i in self.code[start : start + length]]

    def _copy_row(self, rng: np.random.Generator, length: int) -> tuple[list[int], list[float]]:
        ids, weights = [BOS_ID], [0.0]
        while len(ids) <= length:
            size = int(rng.integers(4, max(6, length // 3)))
            if rng.random() < 0.5:
                segment = [int(i) for i in rng.integers(len(SPECIAL_TOKENS), self.vocabulary, size=size)]
            else:
                segment = self.code_ids(rng, size)
            times = int(rng.integers(2, 6))
            ids += segment * times
            weights += [0.0] * size + [0.0, *[1.0] * (size - 1)] * (times - 1)
        return ids, weights

    def _code_row(self, rng: np.random.Generator, length: int) -> tuple[list[int], list[float]]:
        return [BOS_ID, *self.code_ids(rng, length)], [0.0] + [1.0] * length

    def _unlisted_row(self, rng: np.random.Generator, length: int) -> tuple[list[int], list[float]]:
        return self._structured_row(rng, length, self.documents[False])

    def _listed_row(self, rng: np.random.Generator, length: int) -> tuple[list[int], list[float]]:
        return self._structured_row(rng, length, self.documents[True])

    def _structured_row(
        self, rng: np.random.Generator, length: int, documents: list[list[int]]
    ) -> tuple[list[int], list[float]]:
        ids = [BOS_ID]
        while len(ids) <= length:
            ids += documents[int(rng.integers(0, len(documents)))]
        return ids, [0.0] + [1.0] * (len(ids) - 1)

    def _needle_row(self, rng: np.random.Generator, length: int) -> tuple[list[int], list[float]]:
        """Return the first episode drawn that fits `length` tokens.

        Raises:
            UsageError: If none of `NEEDLE_DRAWS` does.
        """
        needed = []
        for _ in range(NEEDLE_DRAWS):
            lines, tail, tail_weights = self._episode(rng, most=2 if length < 200 else 5)
            taken = len(tail) + sum(len(line) for line in lines)
            room = length - taken
            if room >= LEAST_FILLER:
                depths = [float(d) for d in rng.random(len(lines))]
                order = [int(i) for i in rng.permutation(len(lines))]
                body = hide(self.code_ids(rng, room), [lines[i] for i in order], depths, self.newlines)
                return [BOS_ID, *body, *tail], [0.0] + [FILLER_WEIGHT] * len(body) + tail_weights
            needed.append(taken + LEAST_FILLER)
        raise UsageError(
            f"no needle episode of {NEEDLE_DRAWS} drawn fits a row of {length} tokens; the shortest needs {min(needed)}"
            ". Give the stage longer rows, or a mix without needles"
        )

    def _episode(self, rng: np.random.Generator, most: int) -> tuple[list[list[int]], list[int], list[float]]:
        """Draw needles; return the lines to hide, and the questions and answers at the end with their weights."""
        needles = make_needles(rng, self.words, int(rng.integers(1, most + 1)))
        lines = [encode(self.tokenizer, needle.note) for needle in needles]
        questions = 1 if rng.random() < 0.7 else min(len(needles), int(rng.integers(2, 4)))
        tail: list[int] = []
        weights: list[float] = []
        for needle in needles[:questions]:
            question, answer = encode(self.tokenizer, needle.question), encode(self.tokenizer, needle.answer)
            tail += question + answer
            weights += [FILLER_WEIGHT] * len(question) + [ANSWER_WEIGHT] * len(answer)
        return lines, [*tail, EOS_ID], [*weights, 1.0]
