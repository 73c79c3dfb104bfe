"""How long a sample and a turn last: chosen once, in the calibration launch, by what the faster program needs.

A fixed number of tokens would be too short for a fast machine and too long for a slow one. Pure functions of seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

SAMPLE_MIN_S: Final = 0.2  # at 0.2 s and more identical work differed less than 1.5-fold, at 64 tokens 2.7-fold
TURN_MIN_S: Final = 0.05  # shorter turns measure the hand-over


def prompts_per_sample(prompt_s: Sequence[float], least_s: float = SAMPLE_MIN_S) -> int:
    """Return how many prompts in sequence make one sample.

    Args:
        prompt_s: seconds of one prompt on each program, as calibrated; the shortest decides.
        least_s: what a sample lasts at least.

    Raises:
        ValueError: no time, or one that is not positive.
    """
    return _count(prompt_s, least_s)


def tokens_per_turn(token_s: Sequence[float], least_s: float = TURN_MIN_S) -> int:
    """Return after how many tokens of its sample a turn ends, the same number on both programs.

    Args:
        token_s: seconds of one token on each program, as calibrated; the shortest decides.
        least_s: what a turn of the faster program lasts at least.

    Raises:
        ValueError: no time, or one that is not positive.
    """
    return _count(token_s, least_s)


def _count(seconds: Sequence[float], least_s: float) -> int:
    if not seconds or not all(0.0 < value < math.inf for value in seconds):
        raise ValueError(f"got {list(seconds)}, expected positive seconds")
    return max(1, math.ceil(least_s / min(seconds) * (1.0 - 1e-12)))
