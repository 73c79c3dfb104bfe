"""Sampling as an accept rule: which uniforms a decision takes; the drawing itself is a backend's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.types import Decision, Draft, Forward, Rows
from engine.verification.rejection import Sampling, Uniforms

Decide = Callable[[Draft, Rows, Sampling, Sequence[float]], Decision]
"""Tests a draft against logits ``[N + 1, V]`` with N + 1 uniforms and reads the outcome, once."""


class SamplingAccept:
    """Accept drafts by rejection sampling; the committed tokens follow the target's distribution."""

    greedy = False

    def __init__(self, settings: Sampling, decide: Decide, margin: Callable[[Forward], float]) -> None:
        self._settings = settings
        self._decide = decide
        self._margin = margin
        self._uniforms = Uniforms(settings.seed, "target")

    def first(self, forward: Forward) -> Decision:
        """Draw the token after the prompt."""
        return self.decide(Draft(), forward)

    def decide(self, draft: Draft, forward: Forward) -> Decision:
        """Draw with the next uniforms of this sequence."""
        return self._decide(draft, forward.logits, self._settings, self._uniforms.take(draft.count + 1))

    def margin(self, forward: Forward) -> float:
        """Return how far the last row's best logit is above its second."""
        return self._margin(forward)
