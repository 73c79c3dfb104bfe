"""Speculative sampling on torch: everything is drawn on the device, then read once.

The rule and the order of draws are those of ``engine.verification.rejection``. Probabilities are float64, so that the
inverse cumulative distribution of a large vocabulary stays exact to well below what a test can see.

Shapes: R rows, N drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.backends.torch.sending import send
from engine.types import Decision, Draft, Proposal
from engine.verification import rejection
from engine.verification.rejection import Sampling


def shape(logits_RV: torch.Tensor, settings: Sampling) -> torch.Tensor:
    """Return the distribution to sample from, float64 ``[R, V]``: temperature, top-k, top-p, renormalised."""
    probs_RV = (logits_RV.double() / settings.temperature).softmax(dim=-1)
    vocabulary = probs_RV.shape[-1]
    if settings.top_k in range(1, vocabulary) or settings.top_p < 1.0:
        ids = likeliest(logits_RV, settings.top_k or vocabulary)
        ordered = probs_RV.gather(-1, ids)
        ordered = ordered / ordered.sum(dim=-1, keepdim=True)
        before = ordered.cumsum(dim=-1).roll(1, dims=-1)
        before[:, 0] = 0.0
        ordered = ordered.masked_fill(before >= settings.top_p, 0.0)
        probs_RV = torch.zeros_like(probs_RV).scatter_(-1, ids, ordered)
    return probs_RV / probs_RV.sum(dim=-1, keepdim=True)


def likeliest(scores_RV: torch.Tensor, count: int) -> torch.Tensor:
    """Return the ids of the ``count`` highest scores, highest first, int64 ``[R, count]``; of equal ones the lowest.

    Logits order as their probabilities do and are half as wide, and where few are kept only those few are sorted.
    """
    vocabulary = scores_RV.shape[-1]
    if count >= vocabulary:
        return scores_RV.argsort(dim=-1, descending=True, stable=True)
    lowest = scores_RV.topk(count, dim=-1).values[:, -1:]
    above, equal = scores_RV > lowest, scores_RV == lowest
    room = count - above.sum(dim=-1, keepdim=True)
    kept = above | (equal & (equal.cumsum(dim=-1) <= room))
    ids = scores_RV.masked_fill(~kept, -torch.inf).topk(count, dim=-1).indices.sort(dim=-1).values
    order = scores_RV.gather(-1, ids).argsort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, order)


def draw(weights_RV: torch.Tensor, uniforms_R: torch.Tensor) -> torch.Tensor:
    """Return one id per row, int64 ``[R]``: the first whose cumulative weight exceeds ``uniform * total``."""
    cumulative = weights_RV.cumsum(dim=-1)
    wanted = uniforms_R[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, wanted, right=True)[:, 0]
    # Rounding may put a draw close to 1 past the end; the last id with weight is the one meant.
    positive = (weights_RV > 0).to(torch.int64)
    last = weights_RV.shape[-1] - 1 - positive.flip(-1).argmax(dim=-1)
    return torch.minimum(ids, last)


def proposals(probs_NV: torch.Tensor, most: int) -> list[Proposal]:
    """Return for each row the ids with a probability, at most the ``most`` likeliest, with it."""
    ids = likeliest(probs_NV, most)
    rows = zip(ids.tolist(), probs_NV.gather(-1, ids).tolist(), strict=True)
    return [rejection.possible(*row) for row in rows]


def drawn(
    proposed: Sequence[Proposal], vocab_size: int, uniforms: Sequence[float], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an id drawn from each proposal, int64 ``[N]``, and the proposals as float64 rows ``[N, V]``."""
    ids, probs = (torch.tensor(side, device=device) for side in rejection.padded(proposed))
    rows_NV = torch.zeros((len(proposed), vocab_size), dtype=torch.float64, device=device)
    rows_NV.scatter_(-1, ids, probs.double())
    # What a token is tested against is what it was drawn from: they were added in another precision elsewhere.
    rows_NV /= rows_NV.sum(dim=-1, keepdim=True)
    return draw(rows_NV, send(uniforms, device, torch.float64)), rows_NV


def decide(draft: Draft, logits: torch.Tensor, settings: Sampling, uniforms: Sequence[float]) -> Decision:
    """Test the draft, draw what follows at every row it could end at, and read it all at once.

    Args:
        draft: N tokens; without ``probs`` the proposal was deterministic, a distribution with all mass on its token.
        logits: ``[N + 1, V]``.
        settings: How to shape the logits.
        uniforms: N tests, then the draw of the token that follows.
    """
    count = draft.count
    usable = logits.sum(dim=-1, dtype=torch.float32).isfinite()
    target = shape(logits.nan_to_num(0.0, 0.0, 0.0), settings)
    on_device = isinstance(draft.tokens, torch.Tensor)
    tokens = draft.tokens.long() if on_device else send(draft.tokens, target.device, torch.int64)
    chances = send(uniforms, target.device, target.dtype)
    # Only one row's final draw is ever used, so all rows share its uniform.
    final = chances[-1:].expand(count + 1)
    passed, recovered = verify(target[:count], draft.probs, tokens, chances[:count], final[:count])
    last = draw(target[count:], final[count:])
    numbers: list[int] = torch.cat([usable.long(), recovered, last, passed.long(), tokens]).tolist()
    rows = count + 1
    return rejection.settle(
        draft=numbers[2 * rows + count :],
        passed=[bool(value) for value in numbers[2 * rows : 2 * rows + count]],
        recovered=numbers[rows : 2 * rows],
        usable=[bool(value) for value in numbers[:rows]],
    )


def verify(
    target_NV: torch.Tensor,
    proposed_NV: torch.Tensor | None,
    tokens_N: torch.Tensor,
    tests_N: torch.Tensor,
    finals_N: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Test every drafted row and draw what replaces it should it be the first to fail.

    Returns:
        Which rows pass, bool ``[N]``, and the replacements, int64 ``[N]``.
    """
    column = tokens_N[:, None]
    if proposed_NV is None:
        proposed_NV = torch.zeros_like(target_NV).scatter_(-1, column, 1.0)
    proposed_NV = proposed_NV.to(target_NV.dtype)
    passed = tests_N[:, None] * proposed_NV.gather(-1, column) < target_NV.gather(-1, column)
    positive = (target_NV - proposed_NV).clamp(min=0.0)
    # Nothing left means the two agree, so a rejection cannot happen; the row must still be a distribution. What a
    # drafter proposes that is no number is never accepted, and the target alone says what follows.
    empty = ~(positive.sum(dim=-1, keepdim=True) > 0.0)
    return passed[:, 0], draw(torch.where(empty, target_NV, positive), finals_N)
