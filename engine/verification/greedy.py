"""Greedy acceptance: keep the drafted prefix that the target would have chosen itself.

Knows only integers. Row j of a block's forward predicts the token after row j, so draft token j is accepted when it
equals the prediction of the row before it, and the first prediction that is not confirmed is committed anyway: every
step commits at least one token, and the committed tokens are exactly a prefix of the target's own predictions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.types import Decision


def accepted_length(draft: Sequence[int], predicted: Sequence[int]) -> int:
    """Return how many leading draft tokens equal the target's predictions."""
    count = 0
    for token, prediction in zip(draft, predicted, strict=False):
        if token != prediction:
            break
        count += 1
    return count


def decide(
    draft: Sequence[int],
    predicted: Sequence[int],
    usable: Sequence[bool],
    vocab_size: int,
    min_entropy_nats: Sequence[float] | None = None,
) -> Decision:
    """Apply the rule to one block.

    Args:
        draft: The proposed ids, n of them.
        predicted: The target's argmax of each of the n + 1 rows.
        usable: Whether each row's logits are all finite.
        vocab_size: Ids outside ``[0, vocab_size)`` are never committed.
        min_entropy_nats: How unsure the target was at each row, where the backend knows it.

    Returns:
        The committed tokens. Rows from the first unusable one on are ignored, so a bad row costs its block's tail and
        nothing else; when row 0 is bad no token is committed and ``guard`` says so.
    """
    sound = len(predicted)
    guard = None
    for row, (token, finite) in enumerate(zip(predicted, usable, strict=True)):
        if not finite or not 0 <= token < vocab_size:
            sound = row
            guard = "non-finite logits" if not finite else f"predicted id {token} outside the vocabulary"
            break
    if sound == 0:
        return Decision(tokens=(), accepted=0, guard=guard)
    accepted = accepted_length(draft[: sound - 1], predicted)
    # A row after the decision was never needed, so what it holds rejected nothing.
    needed = guard is not None and accepted == sound - 1
    return Decision(
        tokens=tuple(predicted[: accepted + 1]),
        accepted=accepted,
        guard=guard if needed else None,
        min_entropy_nats=None if min_entropy_nats is None else min_entropy_nats[accepted],
    )


def settle(numbers: Sequence[float], rows: int, draft: Sequence[int] | None, vocab_size: int) -> Decision:
    """Apply the rule to what a backend read at once.

    Args:
        numbers: Predicted ids and min-entropies of ``rows`` rows, then the draft's ids when ``draft`` is None.
        rows: How many rows the forward had.
        draft: The proposed ids where the host knew them.
        vocab_size: Ids outside ``[0, vocab_size)`` are never committed.
    """
    proposed = [int(value) for value in numbers[2 * rows :]] if draft is None else draft
    unsure = numbers[rows : 2 * rows]
    predicted = [int(value) for value in numbers[:rows]]
    # Min-entropy is finite exactly when the row can be used: NaN and infinity both carry through to it.
    return decide(proposed, predicted, [math.isfinite(value) for value in unsure], vocab_size, unsure)
