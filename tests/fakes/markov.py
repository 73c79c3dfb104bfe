"""A target whose next token depends on the last one alone, and drafters that know another such chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.drafters.local import LocalDrafter
from engine.types import Decision, Draft, DrafterInfo, Features, Forward
from engine.verification.rejection import Sampling, Uniforms
from tests.fakes import rejection


@dataclass
class MarkovSequence:
    """Logits of a row are the table's row of its token; ``array`` puts them on a backend."""

    table: np.ndarray
    array: Callable[[np.ndarray], Any]
    length: int = 0
    max_positions: int = 1 << 20

    def expect(self, new_tokens: int) -> None:
        del new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        del chunk
        self.length += len(ids)
        yield Forward(self.array(self.table[[ids[-1]]]), None, 0, len(ids))

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        start = self.length
        self.length += 1 + draft.count
        return Forward(self.array(self.table[[bonus, *draft.tokens]]), None, start, 1 + draft.count)

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        raise AssertionError("a sampling rule must not be decoded greedily")

    def committed(self, forward: Forward, rows: int) -> Features:
        return None

    def crop(self, length: int) -> None:
        assert length <= self.length
        self.length = length

    def measured_bytes(self) -> int:
        return 0

    def latent_bytes(self) -> int:
        return 0


@dataclass
class MarkovDrafter(LocalDrafter):
    """Samples its own chain, or proposes its most likely tokens when ``settings`` is None."""

    table: np.ndarray
    array: Callable[[np.ndarray], Any]
    settings: Sampling | None
    forwards: int = 0
    uniforms: Uniforms = field(init=False)

    def __post_init__(self) -> None:
        self.uniforms = Uniforms(0 if self.settings is None else self.settings.seed, "drafter")
        temperature = 1.0 if self.settings is None else self.settings.temperature
        self.rows = [rejection.shape(row, temperature) for row in self.table.tolist()]

    @property
    def info(self) -> DrafterInfo:
        return DrafterInfo("markov", None, "rule", 0, None)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        del position
        self.forwards += 1
        tokens: list[int] = []
        for uniform in self.uniforms.take(count):
            row = self.rows[tokens[-1] if tokens else bonus]
            best = int(np.argmax(row))
            tokens.append(best if self.settings is None else rejection.draw(row, uniform))
        if self.settings is None:
            return Draft(tokens=tuple(tokens), count=count)
        probs = np.array([self.rows[token] for token in (bonus, *tokens[:-1])])
        return Draft(tokens=tuple(tokens), count=count, probs=self.array(probs))

    def observe(self, start: int, tokens: Sequence[int], features: Features) -> None:
        return

    def measured_bytes(self) -> int:
        return 0


class FakeClock:
    """Time does not matter here."""

    eager = False

    def now_ns(self) -> int:
        return 0

    def host_ns(self) -> int:
        return 0
