"""What training an f_theta may bring near to the target's own: rows, what attention makes of them, or what is said.

Rows are compared as the cache keeps them, normed and rotated: a rotation leaves angles and sizes as they are. Angles
alone would not see rows that shrink, so each loss of angles has a term of sizes beside it.

Shapes: N positions, E values of a head, S rows of a block, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from engine.backends.rows import Rows

ATTENTION_LOSSES = ("attn_distill", "attn_distill_hybrid")
"""Those that compare the outputs of attention."""
SPREAD_WEIGHT = 0.1
"""Of the squared error over the variance, in ``combined``."""
DIRECTION_WEIGHT, SIZE_WEIGHT = 1.0, 0.1
"""Of angles and sizes beside the outputs of attention, for keys and for values each."""


def mse(made: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the mean squared difference of rows ``[1, heads, N, E]``."""
    return functional.mse_loss(made, kept)


def direction(made: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return one minus the mean cosine of the angles between heads."""
    return 1 - functional.cosine_similarity(made, kept, dim=-1).mean()


def size(made: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the mean squared difference of the sizes of heads, over the mean of their squares."""
    sizes = kept.norm(dim=-1)
    return (made.norm(dim=-1) - sizes).square().mean() / sizes.square().mean()


def cos_mag(made: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return what directions and sizes miss."""
    return direction(made, kept) + size(made, kept)


def combined(made: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return what directions and sizes miss, and a tenth of the share of the variance that is missed."""
    return cos_mag(made, kept) + SPREAD_WEIGHT * mse(made, kept) / kept.var(correction=0)


def hybrid(made: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return what stands beside the outputs of attention: directions in full, a tenth of the sizes."""
    return DIRECTION_WEIGHT * direction(made, kept) + SIZE_WEIGHT * size(made, kept)


BY_ROWS = {"mse": mse, "cos_mag": cos_mag, "combined": combined, "attn_distill_hybrid": hybrid}


def row_loss(name: str, made: Mapping[int, Rows], kept: Mapping[int, Rows]) -> torch.Tensor:
    """Return a loss of rows: keys and values added up, the mean over layers.

    Args:
        name: One of ``BY_ROWS``.
        made: Rows of positions by layer, as they were made again.
        kept: The target's own rows of the same positions.
    """
    compare = BY_ROWS[name]
    sides = [compare(*pair) for layer, rows in made.items() for pair in zip(rows, kept[layer], strict=True)]
    return torch.stack(sides).sum() / len(made)


def attended_loss(
    found: Mapping[int, torch.Tensor], wanted: Mapping[int, torch.Tensor], weights_S: torch.Tensor
) -> torch.Tensor:
    """Return the squared error of the outputs of attention ``[S, D]``, rows weighed, the mean over layers."""
    missed = [(found[layer] - wanted[layer]).square().mean(dim=-1) for layer in found]
    return (torch.stack(missed).mean(dim=0) * weights_S).sum() / weights_S.sum()
