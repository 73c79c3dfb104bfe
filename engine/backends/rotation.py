"""A fixed rotation that spreads what keys hold over all values of a head, so that few bits can say it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def rotation(head_dim: int) -> Any:
    """Return an orthogonal matrix ``[head_dim, head_dim]`` in float32, the same in every process.

    Channels of rotary keys differ widely in size, and codes of 2 bits with one scale would keep only the largest; after
    a random rotation all are alike (as in QuIP, arXiv 2307.13304).
    """
    drawn = np.random.default_rng(0).standard_normal((head_dim, head_dim))
    return np.linalg.qr(drawn)[0].astype(np.float32)
