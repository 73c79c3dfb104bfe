"""Speculative sampling on MLX: everything is drawn on the device, then read once.

The rule and the order of draws are those of ``engine.verification.rejection``. Probabilities are float32, the widest
type Metal has.

Shapes: R rows, N drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from engine.types import Decision, Draft, Proposal
from engine.verification import rejection
from engine.verification.rejection import Sampling

SUMMED_AT_ONCE = 512
"""How many weights are added one after the other: behind a sum near 1 float32 knows nothing below 3e-8."""


def shape(logits_RV: mx.array, settings: Sampling) -> mx.array:
    """Return the distribution to sample from, float32 ``[R, V]``: temperature, top-k, top-p, renormalised."""
    probs_RV = mx.softmax(logits_RV.astype(mx.float32) / settings.temperature, axis=-1, precise=True)
    vocabulary = probs_RV.shape[-1]
    if settings.top_k in range(1, vocabulary) or settings.top_p < 1.0:
        # Merge sort keeps equally likely ids lowest first, as in the reference.
        ids = mx.argsort(-probs_RV, axis=-1)[:, : settings.top_k or vocabulary]
        ordered = mx.take_along_axis(probs_RV, ids, axis=-1)
        running = cumulated(ordered)
        before = running - ordered
        # The first id survives whatever rounding says.
        kept = (before < settings.top_p * running[:, -1:]) | (mx.arange(ordered.shape[-1]) == 0)
        probs_RV = mx.put_along_axis(mx.zeros_like(probs_RV), ids, mx.where(kept, ordered, 0.0), axis=-1)
    return probs_RV / mx.sum(probs_RV, axis=-1, keepdims=True)


def draw(weights_RV: mx.array, uniforms_R: mx.array) -> mx.array:
    """Return one id per row, int32 ``[R]``: the first whose cumulative weight exceeds ``uniform * total``."""
    ids, cumulative = mx.arange(weights_RV.shape[-1]), cumulated(weights_RV)
    # Rounding may put a draw close to 1 past the end; the last id with weight is the one meant.
    last = mx.max(mx.where(weights_RV > 0, ids, 0), axis=-1, keepdims=True)
    exceeding = (weights_RV > 0) & (cumulative > uniforms_R[:, None] * cumulative[:, -1:])
    return mx.min(mx.where(exceeding, ids, last), axis=-1).astype(mx.int32)


def cumulated(weights_RV: mx.array) -> mx.array:
    """Return the running sums of every row, float32 ``[R, V]``.

    Weights are added within blocks and blocks to each other. One sum over a vocabulary would leave out every weight
    that is small beside what stands before it, however many there are.
    """
    rows, vocabulary = weights_RV.shape
    size = min(SUMMED_AT_ONCE, vocabulary)
    blocks = mx.pad(weights_RV, [(0, 0), (0, -vocabulary % size)]).reshape(rows, -1, size)
    inside = mx.cumsum(blocks, axis=-1)
    before = mx.cumsum(inside[..., -1], axis=-1, inclusive=False)
    running: mx.array = (before[..., None] + inside).reshape(rows, -1)[:, :vocabulary]
    return running


def proposals(probs_NV: mx.array, most: int) -> list[Proposal]:
    """Return for each row the ids with a probability, at most the ``most`` likeliest, with it."""
    most = min(most, probs_NV.shape[-1])
    ids_NK = mx.argsort(-probs_NV, axis=-1)[:, :most]
    ids: Any = ids_NK.tolist()
    probs: Any = mx.take_along_axis(probs_NV, ids_NK, axis=-1).tolist()
    return [rejection.possible(*row) for row in zip(ids, probs, strict=True)]


def drawn(proposed: Sequence[Proposal], vocab_size: int, uniforms: Sequence[float]) -> tuple[mx.array, mx.array]:
    """Return an id drawn from each proposal, int32 ``[N]``, and the proposals as float32 rows ``[N, V]``."""
    ids, probs = rejection.padded(proposed)
    rows_NV = mx.zeros((len(proposed), vocab_size), mx.float32)
    rows_NV = mx.put_along_axis(rows_NV, mx.array(ids, mx.int32), mx.array(probs, mx.float32), axis=-1)
    # What a token is tested against is what it was drawn from: they were added in another precision elsewhere.
    rows_NV = rows_NV / mx.sum(rows_NV, axis=-1, keepdims=True)
    return draw(rows_NV, mx.array(list(uniforms), mx.float32)), rows_NV


def decide(draft: Draft, logits: mx.array, settings: Sampling, uniforms: Sequence[float]) -> Decision:
    """Test the draft, draw what follows at every row it could end at, and read it all at once.

    Args:
        draft: N tokens; without ``probs`` the proposal was deterministic, a distribution with all mass on its token.
        logits: ``[N + 1, V]``.
        settings: How to shape the logits.
        uniforms: N tests, then the draw of the token that follows.
    """
    count = draft.count
    usable = mx.isfinite(mx.sum(logits.astype(mx.float32), axis=-1))
    target = shape(mx.where(usable[:, None], logits, 0.0), settings)
    chances = mx.array(list(uniforms), mx.float32)
    # Only one row's final draw is ever used, so all rows share its uniform.
    final = mx.broadcast_to(chances[-1:], (count + 1,))
    last = draw(target[count:], final[count:])
    parts = [usable.astype(mx.int32), last]
    if count:
        tokens = (
            draft.tokens.astype(mx.int32) if isinstance(draft.tokens, mx.array) else mx.array(draft.tokens, mx.int32)
        )
        passed, recovered = verify(target[:count], draft.probs, tokens, chances[:count], final[:count])
        parts += [recovered, passed.astype(mx.int32), tokens]
    numbers: Any = mx.concatenate(parts).tolist()
    rows = count + 1
    replacements, verdicts = numbers[rows + 1 : rows + 1 + count], numbers[rows + 1 + count : rows + 1 + 2 * count]
    return rejection.settle(
        draft=numbers[rows + 1 + 2 * count :],
        passed=[bool(value) for value in verdicts],
        recovered=[*replacements, numbers[rows]],
        usable=[bool(value) for value in numbers[:rows]],
    )


def verify(
    target_NV: mx.array, proposed_NV: mx.array | None, tokens_N: mx.array, tests_N: mx.array, finals_N: mx.array
) -> tuple[mx.array, mx.array]:
    """Test every drafted row and draw what replaces it should it be the first to fail.

    Returns:
        Which rows pass, bool ``[N]``, and the replacements, int32 ``[N]``.
    """
    column = tokens_N[:, None]
    if proposed_NV is None:
        proposed_NV = (mx.arange(target_NV.shape[-1])[None] == column).astype(target_NV.dtype)
    given = mx.take_along_axis(proposed_NV, column, axis=-1)
    passed = tests_N[:, None] * given < mx.take_along_axis(target_NV, column, axis=-1)
    positive = mx.maximum(target_NV - proposed_NV, 0.0)
    # Nothing left means the two agree, so a rejection cannot happen; the row must still be a distribution. What a
    # drafter proposes that is no number is never accepted, and the target alone says what follows.
    empty = mx.logical_not(mx.sum(positive, axis=-1, keepdims=True) > 0.0)
    return passed[:, 0], draw(mx.where(empty, target_NV, positive), finals_N)
