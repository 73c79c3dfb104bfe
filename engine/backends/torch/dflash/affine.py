"""Values of affine codes on torch; the format is in ``engine.drafters.affine``."""

from __future__ import annotations

import torch

from engine.drafters.affine import AffineCodes


def values_of(stored: AffineCodes[torch.Tensor]) -> torch.Tensor:
    """Return the values that a matrix of codes stands for, in the dtype of its scales."""
    rows = stored.codes.shape[0]
    shifts = torch.arange(0, 32, stored.bits)
    # Words are unsigned and torch shifts none of those: 64 bits hold them with their sign clear.
    words = stored.codes.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    codes = (words[..., None] >> shifts) & ((1 << stored.bits) - 1)
    grouped = codes.reshape(rows, -1, stored.group_size).float()
    values = grouped * stored.scales[..., None].float() + stored.biases[..., None].float()
    return values.reshape(rows, -1).to(stored.scales.dtype)
