"""Facts about a token list that both sides compute for themselves: digest, loops, repeats."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Sequence

LOOP_MAX_PERIOD = 32
LOOP_MIN_REPEATS = 3
LOOP_MIN_TOKENS = 48
REPEAT_NGRAM = 8


def token_digest(tokens: Sequence[int]) -> str:
    """Return the sha256 hex over the ids as little-endian uint32."""
    return hashlib.sha256(token_bytes(tokens)).hexdigest()


def packed_tokens(tokens: Sequence[int]) -> str:
    """Return the base64 of the bytes that `token_digest` digests: half the room of a JSON list of long prompts."""
    return base64.b64encode(token_bytes(tokens)).decode("ascii")


def token_bytes(tokens: Sequence[int]) -> bytes:
    """Return the ids as little-endian uint32."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def loop_onset(tokens: Sequence[int]) -> int | None:
    """Return the first index from which tokens repeat: period <= 32, >= 3 times, over >= 48 tokens; None if never."""
    best: int | None = None
    count = len(tokens)
    for period in range(1, LOOP_MAX_PERIOD + 1):
        needed = max(LOOP_MIN_TOKENS, LOOP_MIN_REPEATS * period)
        run = 0
        for index in range(period, count):
            run = run + 1 if tokens[index] == tokens[index - period] else 0
            if run + period >= needed:
                start = index - run - period + 1
                best = start if best is None else min(best, start)
                break
    return best


def repeated_share(tokens: Sequence[int]) -> float:
    """Return 1 - distinct/total over all 8-grams, 0 for fewer than 8 tokens."""
    total = len(tokens) - REPEAT_NGRAM + 1
    if total <= 0:
        return 0.0
    distinct = {tuple(tokens[index : index + REPEAT_NGRAM]) for index in range(total)}
    return 1.0 - len(distinct) / total
