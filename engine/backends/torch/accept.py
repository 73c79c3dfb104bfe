"""Greedy acceptance on torch: one packed read, then the integer rule of ``engine.verification``."""

from __future__ import annotations

import torch

from engine.types import Draft, Forward, Outcome
from engine.verification import greedy


def predictions(logits: torch.Tensor) -> torch.Tensor:
    """Return argmax and finiteness of each row, int64 ``[2, rows]``, still on the device.

    A row's sum is finite exactly when each of its logits is (float32 cannot overflow on summed logits of any known
    vocabulary), and argmax alone would hide a NaN.
    """
    best = logits.argmax(dim=-1)
    finite = logits.sum(dim=-1, dtype=torch.float32).isfinite()
    return torch.stack([best, finite.to(best.dtype)])


def margin(forward: Forward) -> float:
    """Return how far the last row's best logit is above its second."""
    best, second = forward.logits[-1].float().topk(2).values.tolist()
    return float(best - second)


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
        return self.read(draft, predictions(forward.logits))

    def margin(self, forward: Forward) -> float:
        """Return how far the last row's best logit is above its second."""
        return margin(forward)

    def read(self, draft: Draft, packed: torch.Tensor) -> Outcome:
        """Apply the rule to ``predictions`` computed earlier: the host waits here and nowhere else."""
        rows = packed.shape[1]
        flat = packed.reshape(-1)
        on_device = isinstance(draft.tokens, torch.Tensor)
        if on_device:
            flat = torch.cat([flat, draft.tokens.to(flat.dtype)])
        numbers: list[int] = flat.tolist()
        proposed = numbers[2 * rows :] if on_device else list(draft.tokens)
        usable = [bool(value) for value in numbers[rows : 2 * rows]]
        return greedy.decide(proposed, numbers[:rows], usable, self.vocab_size)
