"""A sequence and its drafter kept from turn to turn: what a prompt shares with them is not forwarded again."""

from __future__ import annotations

from engine.errors import CacheCropError
from engine.loading import Engine
from engine.measurement.launch import agreement
from engine.protocols import Drafter, Sequence
from engine.structure.layout import CacheLayout


class Conversation:
    """The caches of one conversation on an engine, on one cache layout.

    A template may write earlier turns otherwise than they were decoded, without their thoughts for instance: the caches
    go back to the first token that differs. Where a sliding window has dropped rows that this needs, both begin anew.
    """

    def __init__(self, engine: Engine, layout: CacheLayout) -> None:
        self._engine = engine
        self._layout = layout
        self._parts: tuple[Sequence, Drafter] | None = None
        self._tokens: tuple[int, ...] = ()

    @property
    def positions(self) -> int:
        """How many positions the target's cache holds now."""
        return 0 if self._parts is None else self._parts[0].length

    def measured_bytes(self) -> int:
        """Return the bytes of the target's caches and of the drafter's."""
        return 0 if self._parts is None else sum(part.measured_bytes() for part in self._parts)

    def shared(self, prompt: tuple[int, ...]) -> int:
        """Return how many tokens of a prompt the caches begin with, as far as no window has dropped them."""
        return min(agreement(self._tokens, prompt), len(prompt) - 1)

    def resume(self, prompt: tuple[int, ...]) -> tuple[Sequence, Drafter, int]:
        """Return sequence and drafter for a prompt, and how many of its tokens they hold; at least one is left."""
        shared = self.shared(prompt)
        # Whatever breaks off from here on leaves caches that nobody may continue.
        self._tokens, parts = (), self._parts
        if parts is not None and shared > 0:
            try:
                # A drafter may hold less than the target, which goes back as far.
                shared = parts[1].rewind(shared)
                parts[0].rewind(shared)
            except CacheCropError:
                shared = 0
            if shared > 0:
                return *parts, shared
        self._parts = self._engine.target.open(self._engine.drafter.capture, self._layout), self._engine.drafter.open()
        return *self._parts, 0

    def keep(self, tokens: tuple[int, ...]) -> None:
        """Take what a decode has ended with, prompt and answer; rows behind them are never used."""
        if self._parts is not None:
            self._tokens = tokens[: self._parts[0].length]
