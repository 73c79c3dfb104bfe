"""What torch remembers the keys of evicted pages by: 2-bit codes of each.

Shapes: G key heads, R rows of queries of all heads that share a key head, S remembered rows, P pages, E values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import torch

from engine.backends.rotation import rotation
from engine.backends.rows import ASKING_ROWS, PageIndex


class KeyCodes:
    """Each key rotated, in codes of 2 bits with one scale in the dtype of the keys."""

    def encode(self, keys: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return codes, four in a byte ``[1, G, rows, E / 4]``, and scales ``[1, G, rows, 1]``."""
        turned = keys.float() @ _rotation(keys.shape[-1], keys.device)
        scale = turned.abs().amax(dim=-1, keepdim=True) / 1.5
        scale = scale.masked_fill(scale == 0, 1.0).to(keys.dtype)
        codes = ((turned / scale.float() - 0.5).round().clamp(-2, 1) + 2).to(torch.uint8)
        return codes[..., 0::4] | codes[..., 1::4] << 2 | codes[..., 2::4] << 4 | codes[..., 3::4] << 6, scale

    def mass(
        self, queries: torch.Tensor, parts: Sequence[torch.Tensor], held: torch.Tensor, pages: int, scale: float
    ) -> Sequence[float]:
        """Return by page the largest share of attention by the keys as coded."""
        packed, steps = parts
        asking = _asking(queries, held)
        codes = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], dim=-1).flatten(-2)
        coded = (codes.float() - 1.5) * steps.float()
        turned = asking @ _rotation(queries.shape[-1], queries.device)
        scores = turned @ coded.transpose(2, 3) * scale
        return _shares(scores.unflatten(-1, (pages, -1)).logsumexp(dim=-1), asking, held, scale)


@cache
def _rotation(head_dim: int, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(rotation(head_dim)).to(device)


def _asking(queries: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Return the newest queries by the key head they look at, ``[1, G, R, E]``."""
    return queries[:, :, -ASKING_ROWS:].float().unflatten(1, (held.shape[1], -1)).flatten(2, 3)


def _shares(pages: torch.Tensor, asking: torch.Tensor, held: torch.Tensor, scale: float) -> Sequence[float]:
    """Return by page the largest share of attention, of scores ``[1, G, R, P]`` summed over the rows of each."""
    beside = (asking @ held.float().transpose(2, 3) * scale).logsumexp(dim=-1, keepdim=True)
    total = torch.logaddexp(pages.logsumexp(dim=-1, keepdim=True), beside)
    shares: list[float] = (pages - total).exp().amax(dim=(0, 1, 2)).tolist()
    return shares


INDEXES: Mapping[str, PageIndex] = {"codes": KeyCodes()}
