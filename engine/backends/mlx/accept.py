"""Greedy acceptance on MLX: one wait, then the integer rule of ``engine.verification``."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from engine.types import Decision, Draft, Forward
from engine.verification import greedy


def predictions(logits: mx.array) -> tuple[mx.array, mx.array]:
    """Return argmax and min-entropy of each row, uint32 and float32 ``[rows]``, still on the device.

    Min-entropy is logsumexp minus the best logit, in nats. It is finite exactly when the row can be used: NaN and
    infinity both carry through, where argmax alone would hide a NaN.
    """
    wide = logits.astype(mx.float32)
    return mx.argmax(logits, axis=-1), mx.logsumexp(wide, axis=-1) - mx.max(wide, axis=-1)


def read(arrays: list[mx.array]) -> list[float]:
    """Wait once for all of ``arrays`` and return their values one after the other.

    Memory is the host's own on MLX, so only the waiting costs: packing them into one array would cost operations.
    """
    mx.async_eval(*arrays)
    values: list[Any] = [array.tolist() for array in arrays]
    return [number for part in values for number in part]


class GreedyAccept:
    """Accept what the target would have chosen itself."""

    greedy = True

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def first(self, forward: Forward) -> Decision:
        """Decide the token after the prompt."""
        return self.decide(Draft(), forward)

    def decide(self, draft: Draft, forward: Forward) -> Decision:
        """Read draft and predictions together and apply the rule."""
        best, unsure = predictions(forward.logits)
        on_device = isinstance(draft.tokens, mx.array)
        numbers = read([best, unsure, draft.tokens] if on_device else [best, unsure])
        return greedy.settle(numbers, best.shape[0], None if on_device else draft.tokens, self.vocab_size)

    def margin(self, forward: Forward) -> float:
        """Return how far the last row's best logit is above its second."""
        return margin(forward)


def gaps(forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
    """Return by row how far the best logit is above that of ``tokens[row]``; not finite where a logit is no number.

    A logit of minus infinity is one: some models mask a part of their vocabulary.
    """
    wide = forward.logits.astype(mx.float32)
    taken = mx.take_along_axis(wide, mx.array(tokens, mx.int32)[:, None], axis=-1)[:, 0]
    unknown = mx.any(mx.isnan(wide), axis=-1)
    found: Any = mx.where(unknown, mx.nan, mx.max(wide, axis=-1) - taken).tolist()
    return tuple(float(gap) for gap in found)


def likeliest(forward: Forward) -> tuple[int, ...]:
    """Return by row the id of the largest logit, the lowest of several."""
    ids: Any = mx.argmax(forward.logits, axis=-1).tolist()
    return tuple(int(index) for index in ids)


def log_probabilities(forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
    """Return by row the natural logarithm of the probability of ``tokens[row]``, in float32."""
    wide = forward.logits.astype(mx.float32)
    taken = mx.take_along_axis(wide, mx.array(tokens, mx.int32)[:, None], axis=-1)[:, 0]
    found: Any = (taken - mx.logsumexp(wide, axis=-1)).tolist()
    return tuple(float(value) for value in found)


def apart(one: Forward, other: Forward) -> float:
    """Return the largest difference between the logits of two forwards; those that are the same infinity are equal."""
    mine, theirs = one.logits.astype(mx.float32), other.logits.astype(mx.float32)
    found: Any = mx.max(mx.where(mine == theirs, 0.0, mx.abs(mine - theirs))).item()
    return float(found)


def margin(forward: Forward) -> float:
    """Return how far the last row's best logit is above its second."""
    top = mx.sort(forward.logits[-1].astype(mx.float32))
    gap: Any = (top[-1] - top[-2]).item()
    return float(gap)
