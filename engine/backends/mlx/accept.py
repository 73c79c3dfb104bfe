"""Greedy acceptance on MLX: one packed read, then the integer rule of ``engine.verification``."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from engine.types import Draft, Forward, Outcome
from engine.verification import greedy


def predictions(logits: mx.array) -> mx.array:
    """Return argmax and finiteness of each row, int32 ``[2, rows]``, still on the device.

    A row's sum is finite exactly when each of its logits is (float32 cannot overflow on summed 16-bit logits of any
    known vocabulary), and argmax alone would hide a NaN.
    """
    best = mx.argmax(logits, axis=-1).astype(mx.int32)
    finite = mx.isfinite(mx.sum(logits.astype(mx.float32), axis=-1)).astype(mx.int32)
    return mx.stack([best, finite])


class GreedyAccept:
    """Accept what the target would have chosen itself."""

    greedy = True

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def first(self, forward: Forward) -> Outcome:
        """Decide the token after the prompt."""
        return self.decide(Draft(), forward)

    def decide(self, draft: Draft, forward: Forward) -> Outcome:
        """Read draft and predictions together and apply the rule."""
        packed = predictions(forward.logits).reshape(-1)
        on_device = draft.count > 0 and isinstance(draft.tokens, mx.array)
        if on_device:
            packed = mx.concatenate([packed, draft.tokens.astype(mx.int32)])
        numbers: Any = packed.tolist()
        rows = len(numbers) // 2 if not on_device else (len(numbers) - draft.count) // 2
        proposed = numbers[2 * rows :] if on_device else list(draft.tokens)
        usable = [bool(value) for value in numbers[rows : 2 * rows]]
        return greedy.decide(proposed, numbers[:rows], usable, self.vocab_size)

    def margin(self, forward: Forward) -> float:
        """Return how far the last row's best logit is above its second."""
        return margin(forward)


def margin(forward: Forward) -> float:
    """Return how far the last row's best logit is above its second."""
    top = mx.sort(forward.logits[-1].astype(mx.float32))
    gap: Any = (top[-1] - top[-2]).item()
    return float(gap)
