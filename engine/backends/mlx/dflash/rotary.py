"""Rotary positions of a drafter on MLX, scaled as transformers scales them.

mlx-lm's own YaRN takes other factors and always rounds its bounds: it computes those of mlx-lm's models, and drafters
are trained with transformers'.

Shapes: E head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
from mlx_lm.models.rope_utils import initialize_rope

from engine.backends.mlx.models.yarn import yarn_periods
from engine.drafters.dflash import DFlashConfig

Rotation = Callable[..., mx.array]
"""Takes rows ``[..., rows, E]`` and the ``offset`` of the first one."""


def rotation(config: DFlashConfig) -> Rotation:
    """Return what rotates the queries and keys of a drafter."""
    scaling = dict(config.rope_scaling or {})
    if scaling.get("rope_type", scaling.get("type")) == "yarn":
        return _yarn(config.head_dim, config.rope_theta, scaling)
    found: Rotation = initialize_rope(
        config.head_dim,
        base=config.rope_theta,
        traditional=False,
        scaling_config=scaling or None,
        max_position_embeddings=config.max_positions,
    )
    return found


def _yarn(size: int, base: float, scaling: Mapping[str, Any]) -> Rotation:
    """Return YaRN, with rows multiplied by a factor."""
    periods = yarn_periods(size, base, scaling)
    longer = _row_factor(float(scaling["factor"]), scaling)

    def rotated(rows: mx.array, offset: int) -> mx.array:
        scaled = rows if longer == 1.0 else rows * longer
        return mx.fast.rope(scaled, size, traditional=False, base=None, scale=1.0, offset=offset, freqs=periods)

    return rotated


def _row_factor(factor: float, scaling: Mapping[str, Any]) -> float:
    """Return what YaRN multiplies cosines and sines by."""
    given, over, under = (scaling.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim"))
    if given is not None:
        return float(given)

    def grown(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    return grown(over) / grown(under) if over and under else grown(1.0)
