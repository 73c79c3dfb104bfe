"""Greedy acceptance on torch: one packed read, then the integer rule of ``engine.verification``."""

from __future__ import annotations

import torch

from engine.types import Decision, Draft, Forward
from engine.verification import greedy


def predictions(logits: torch.Tensor) -> torch.Tensor:
    """Return argmax and min-entropy of each row, float64 ``[2, rows]``, still on the device; ids are exact in it.

    Min-entropy is logsumexp minus the best logit, in nats. It is finite exactly when the row can be used: NaN and
    infinity both carry through, where argmax alone would hide a NaN.
    """
    wide = logits.float()
    best, ids = wide.max(dim=-1)
    return torch.stack([ids.double(), (wide.logsumexp(dim=-1) - best).double()])


def gaps(forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
    """Return by row how far the best logit is above that of ``tokens[row]``; not finite where a logit is no number.

    A logit of minus infinity is one: some models mask a part of their vocabulary.
    """
    wide = forward.logits.float()
    taken = wide.gather(-1, torch.tensor(tokens, device=wide.device)[:, None])[:, 0]
    found = (wide.max(dim=-1).values - taken).masked_fill(wide.isnan().any(dim=-1), torch.nan)
    return tuple(float(gap) for gap in found.tolist())


def likeliest(forward: Forward) -> tuple[int, ...]:
    """Return by row the id of the largest logit, the lowest of several."""
    return tuple(int(index) for index in forward.logits.argmax(dim=-1).tolist())


def log_probabilities(forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
    """Return by row the natural logarithm of the probability of ``tokens[row]``, in float32."""
    wide = forward.logits.float()
    taken = wide.gather(-1, torch.tensor(tokens, device=wide.device)[:, None])[:, 0]
    return tuple(float(value) for value in (taken - wide.logsumexp(dim=-1)).tolist())


def apart(one: Forward, other: Forward) -> float:
    """Return the largest difference between the logits of two forwards; those that are the same infinity are equal."""
    mine, theirs = one.logits.float(), other.logits.float()
    return float((mine - theirs).abs().masked_fill(mine == theirs, 0.0).max())


def margin(forward: Forward) -> float:
    """Return how far the last row's best logit is above its second."""
    best, second = forward.logits[-1].float().topk(2).values.tolist()
    return float(best - second)


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
        return self.read(draft, predictions(forward.logits))

    def margin(self, forward: Forward) -> float:
        """Return how far the last row's best logit is above its second."""
        return margin(forward)

    def read(self, draft: Draft, packed: torch.Tensor) -> Decision:
        """Apply the rule to ``predictions`` computed earlier: the host waits here and nowhere else."""
        rows = packed.shape[1]
        flat = packed.reshape(-1)
        on_device = isinstance(draft.tokens, torch.Tensor)
        if on_device:
            flat = torch.cat([flat, draft.tokens.to(flat.dtype)])
        return greedy.settle(flat.tolist(), rows, None if on_device else draft.tokens, self.vocab_size)
