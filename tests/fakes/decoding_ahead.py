"""Plain decoding ahead of a sequence that is told to end."""

from __future__ import annotations

from engine.protocols import Sequence

MOST_TOKENS = 20


def until_told(sequence: Sequence, bonus: int, taken: int) -> list[int]:
    """Return the bonus and what comes behind it, having said after ``taken`` tokens that no more are wanted."""
    tokens = [bonus]
    for decision, _ in sequence.decode_ahead(bonus, MOST_TOKENS, lambda: len(tokens) <= taken):
        tokens.append(decision.bonus)
    return tokens
