"""What the tokens and the text of one output are: digest, loops, repeats, the answer, where two differ.

Both sides define these alike. Knows no sample and no report.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final

LOOP_MAX_PERIOD: Final = 32
LOOP_MIN_REPEATS: Final = 3
LOOP_MIN_TOKENS: Final = 48
REPEAT_NGRAM: Final = 8


def token_digest(tokens: Sequence[int]) -> str | None:
    """Return sha256 hex over the ids as little-endian uint32, None when an id does not fit."""
    try:
        return hashlib.sha256(struct.pack(f"<{len(tokens)}I", *tokens)).hexdigest()
    except struct.error:
        return None


def answered(expected: str, text: str) -> bool:
    """Return whether the answer's first line holds the expected value as a whole word."""
    return expected in first_words(text)


def first_words(text: str) -> set[str]:
    """Return the words of a text's first line, without punctuation around them."""
    first = text.strip().split("\n", 1)[0]
    return {word.strip(".,;:!?'\"()") for word in first.split()}


def loop_onset(tokens: Sequence[int]) -> int | None:
    """Return the first index from which tokens repeat, None if never.

    A loop has a period of at most 32 tokens, at least 3 full repeats, and covers at least 48 tokens; numbered lists,
    dashes and decimals that merely look alike do not repeat exactly that long.
    """
    best: int | None = None
    for period in range(1, min(LOOP_MAX_PERIOD, len(tokens) // LOOP_MIN_REPEATS) + 1):
        needed = max(LOOP_MIN_TOKENS, LOOP_MIN_REPEATS * period)
        equal = 0
        for index in range(period, len(tokens)):
            equal = equal + 1 if tokens[index] == tokens[index - period] else 0
            if equal + period >= needed:
                start = index + 1 - equal - period
                best = start if best is None or start < best else best
                break
    return best


def repeated_share(tokens: Sequence[int]) -> float:
    """Return 1 - distinct / total over the sample's 8-grams, 0 when there is none."""
    total = len(tokens) - REPEAT_NGRAM + 1
    if total <= 0:
        return 0.0
    return 1.0 - len({tuple(tokens[index : index + REPEAT_NGRAM]) for index in range(total)}) / total


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first index at which two token lists differ, None when they are equal."""
    if left == right:
        return None
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
