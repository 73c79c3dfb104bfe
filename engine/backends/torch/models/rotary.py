"""Rotary position tables of one sequence: cosines and sines for a stretch of positions, computed once and sliced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Table = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""Cosine and sine ``[1, rows, head_dim]`` by layer kind."""

AHEAD_ROWS = 256


class RotaryTable:
    """Positions [base, end) of what ``compute`` returns for position ids ``[1, rows]``."""

    def __init__(
        self, compute: Callable[[torch.Tensor], Table], device: torch.device, positions: int | None = None
    ) -> None:
        """Start with no rows; tables are not computed ahead beyond ``positions``, where dynamic frequencies change."""
        self._compute = compute
        self._device = device
        self._positions = positions
        self._base = 0
        self._end = 0
        self._table: Table = {}

    def rows(self, start: int, count: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Return cosines and sines of positions [start, start + count)."""
        if start < self._base or start + count > self._end:
            ahead = AHEAD_ROWS if self._positions is None else max(0, min(AHEAD_ROWS, self._positions - start - count))
            self._base, self._end = start, start + count + ahead
            self._table = self._compute(torch.arange(self._base, self._end, device=self._device)[None])
        begin = start - self._base
        return {
            kind: (cos[:, begin : begin + count], sin[:, begin : begin + count])
            for kind, (cos, sin) in self._table.items()
        }


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate half-split pairs of ``x`` ``[..., rows, head_dim]`` by tables ``[rows, head_dim]``."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
