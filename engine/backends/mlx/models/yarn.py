"""YaRN's periods as transformers computes them (arXiv 2309.00071): mlx-lm always rounds the bounds between pairs.

Shapes: E head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx


def yarn_periods(size: int, base: float, scaling: Mapping[str, Any]) -> mx.array:
    """Return the period of every pair, ``[E / 2]`` of float32: slow pairs are interpolated, fast ones kept.

    Args:
        size: Rotated values of a head, E.
        base: Of the positions, ``rope_theta``.
        scaling: The rotary settings of a config, ``original_max_position_embeddings`` among them.
    """
    factor, original = float(scaling["factor"]), scaling["original_max_position_embeddings"]

    def pair_that_turns(times: float) -> float:
        return size * math.log(original / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = (pair_that_turns(scaling.get(name) or usual) for name, usual in (("beta_fast", 32), ("beta_slow", 1)))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    high += 0.001 if low == high else 0.0
    slow = [min(max((pair - low) / (high - low), 0.0), 1.0) for pair in range(size // 2)]
    return mx.array([base ** (2 * pair / size) / (part / factor + 1 - part) for pair, part in enumerate(slow)])
