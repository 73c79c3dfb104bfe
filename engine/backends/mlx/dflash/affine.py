"""Values of affine codes on MLX; the format is in ``engine.drafters.affine``."""

from __future__ import annotations

import mlx.core as mx

from engine.drafters.affine import AffineCodes


def values_of(stored: AffineCodes[mx.array]) -> mx.array:
    """Return the values that a matrix of codes stands for, in the dtype of its scales."""
    return mx.dequantize(stored.codes, stored.scales, stored.biases, group_size=stored.group_size, bits=stored.bits)
