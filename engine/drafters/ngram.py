"""Prompt lookup: propose what followed the longest, most recent earlier occurrence of the current suffix.

Knows only token ids. Without a match of at least ``min_tokens`` it proposes nothing, because a wrong draft costs a
verify forward. The search is bounded: every occurrence of the last ``min_tokens`` tokens is found through an index kept
as tokens arrive, and only the ``max_candidates`` most recent ones are compared further back. So is the memory: of a
longer history than ``max_indexed`` tokens only the newest are in the index.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field

from engine.drafters.local import LocalDrafter
from engine.errors import ObservationError
from engine.types import Draft, DrafterInfo, Features, Match

LONGEST_DRAFT = 16
"""Tokens a step looks up at most."""
MOST_INDEXED = 1 << 16
"""Tokens whose places are in the index at most: text of which no two runs are alike takes some 240 bytes a token."""


@dataclass(frozen=True, slots=True)
class NgramModel:
    """The rule's settings; ``open`` starts it on a sequence."""

    min_tokens: int = 2
    max_tokens: int = 8
    max_candidates: int = 64
    max_indexed: int = MOST_INDEXED
    longest: int = LONGEST_DRAFT

    @property
    def info(self) -> DrafterInfo:
        """Settings, for reports."""
        settings = {"min_tokens": self.min_tokens, "max_tokens": self.max_tokens, "max_candidates": self.max_candidates}
        return DrafterInfo(name="ngram", digest=None, format="ngram", parameters=0, block_size=None, settings=settings)

    @property
    def capture(self) -> tuple[int, ...]:
        """Return no layers: token ids are all it reads."""
        return ()

    def open(self) -> NgramDrafter:
        """Start on an empty sequence."""
        return NgramDrafter(self)


@dataclass(slots=True)
class NgramDrafter(LocalDrafter):
    """The index of one sequence: where each run of ``min_tokens`` tokens ended, newest last."""

    model: NgramModel
    tokens: list[int] = field(default_factory=list)
    _ends: defaultdict[tuple[int, ...], list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def forwards(self) -> int:
        """Return 0: there is no network."""
        return 0

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Propose the continuation of the best earlier match of ``tokens + [bonus]``."""
        del position, wait_s
        best = self._best_match(bonus)
        if best is None:
            return Draft(skipped="no match")
        return Draft(tokens=self._continued(bonus, best[1], count), count=count)

    def lookup(self, bonus: int) -> Match | None:
        """Return the continuation of the best earlier match, as far as a draft may reach."""
        best = self._best_match(bonus)
        return None if best is None else Match(self._continued(bonus, best[1], self.model.longest), best[0])

    def _best_match(self, bonus: int) -> tuple[int, int] | None:
        """Return length and end of the longest, most recent earlier match, None for none."""
        history = [*self.tokens[-self.model.max_tokens + 1 :], bonus]
        if len(history) < self.model.min_tokens:
            return None
        best_length, best_end = 0, 0
        for end in reversed(self._ends.get(tuple(history[-self.model.min_tokens :]), ())):
            length = self._match(history, end)
            if length > best_length:
                best_length, best_end = length, end
            if length == len(history):
                break
        return (best_length, best_end) if best_length else None

    def _continued(self, bonus: int, begin: int, count: int) -> tuple[int, ...]:
        """Return the ``count`` tokens from ``begin`` on."""
        proposal: list[int] = []
        length = len(self.tokens)
        for index in range(begin, begin + count):
            if index < length:
                proposal.append(self.tokens[index])
            else:
                # The match runs into the present: the text is periodic, so go on with the period itself.
                proposal.append(bonus if index == length else proposal[index - length - 1])
        return tuple(proposal)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Append committed tokens to the history and the index."""
        del features
        ObservationError.check(start, len(self.tokens))
        size = self.model.min_tokens
        for token in tokens:
            self.tokens.append(token)
            if len(self.tokens) >= size:
                ends = self._ends[tuple(self.tokens[-size:])]
                ends.append(len(self.tokens))
                if len(ends) > self.model.max_candidates:
                    del ends[0]
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Take the run that has become too old out of the index."""
        size, end = self.model.min_tokens, len(self.tokens) - self.model.max_indexed
        if end < size:
            return
        run = tuple(self.tokens[end - size : end])
        ends = self._ends.get(run)
        if ends and ends[0] == end:
            del ends[0]
        if ends is not None and not ends:
            del self._ends[run]

    @property
    def indexed(self) -> int:
        """Places that the index holds."""
        return sum(map(len, self._ends.values()))

    def host_bytes(self) -> int:
        """Return the bytes that history and index hold in the memory of the host."""
        index = sum(sys.getsizeof(run) + sys.getsizeof(ends) for run, ends in self._ends.items())
        numbers = len(self.tokens) + self.indexed  # tokens of a run are those of the history
        return sys.getsizeof(self.tokens) + sys.getsizeof(self._ends) + index + numbers * sys.getsizeof(1 << 20)

    def rewind(self, length: int) -> int:
        """Forget what came after the first ``length`` tokens; return how many are left."""
        size = self.model.min_tokens
        for end in range(len(self.tokens), max(length, size - 1), -1):
            run = tuple(self.tokens[end - size : end])
            ends = self._ends.get(run)
            if ends and ends[-1] == end:
                ends.pop()
                if not ends:
                    del self._ends[run]
        del self.tokens[length:]
        return len(self.tokens)

    def measured_bytes(self) -> int:
        """Return 0: nothing is held on the device."""
        return 0

    def _match(self, history: list[int], end: int) -> int:
        """Return how many tokens before ``end`` equal the end of ``history``."""
        length = 0
        while length < len(history) and length < end and self.tokens[end - 1 - length] == history[-1 - length]:
            length += 1
        return length
