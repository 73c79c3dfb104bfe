"""DFlash 2's pairwise selector on torch; the rules are in ``engine.drafters.dflash2``.

Every pair of neighbouring candidates is scored in one product, and what follows each candidate is settled for all of
them at once; the walk itself only follows a table, one lookup a row, and nothing is read on the host.

Shapes: N rows, V vocabulary, K candidates, R code length, D hidden size; in N, K, K the predecessor comes first.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from engine.backends.torch import sampling
from engine.drafters.dflash2 import CODEBOOKS, DFlash2Config


class Selector:
    """The codebooks of one drafter."""

    def __init__(self, config: DFlash2Config, named: Mapping[str, torch.Tensor]) -> None:
        self._top_k = config.selector_top_k
        self._predecessors_VR, self._successors_VR = (named[name] for name in CODEBOOKS)
        self._projection_RD = named["candidate_selector.hidden_projection.weight"]

    @torch.inference_mode()
    def best(self, bonus: int, hidden_ND: torch.Tensor, logits_NV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the greedy walk from ``bonus``, int64 ``[N]``, and the scores that decided it, float32 ``[N, K]``."""
        scores_NKK, candidates_NK = self.scores(bonus, hidden_ND, logits_NV)
        chosen_N = _follow(scores_NKK.argmax(dim=-1))
        return candidates_NK.gather(-1, chosen_N[:, None])[:, 0], _after(chosen_N, scores_NKK)

    @torch.inference_mode()
    def drawn(
        self,
        bonus: int,
        hidden_ND: torch.Tensor,
        logits_NV: torch.Tensor,
        temperature: float,
        uniforms_N: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a drawn walk, int64 ``[N]``, and what each of its tokens was drawn from, float64 ``[N, V]``."""
        scores_NKK, candidates_NK = self.scores(bonus, hidden_ND, logits_NV)
        rows, kept = candidates_NK.shape
        probs_NKK = (scores_NKK.double() / temperature).softmax(dim=-1)
        draws = sampling.draw(probs_NKK.view(-1, kept), uniforms_N.repeat_interleave(kept))
        chosen_N = _follow(draws.view(rows, kept))
        probs_NK = _after(chosen_N, probs_NKK)
        probs_NV = torch.zeros_like(logits_NV, dtype=probs_NK.dtype).scatter_(-1, candidates_NK, probs_NK)
        return candidates_NK.gather(-1, chosen_N[:, None])[:, 0], probs_NV

    def scores(self, bonus: int, hidden_ND: torch.Tensor, logits_NV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return S of every candidate after every predecessor, float32 ``[N, K, K]``, and the candidates ``[N, K]``.

        The bonus is the only predecessor of row 0 and stands there K times.
        """
        candidates_NK = logits_NV.topk(self._top_k, dim=-1, sorted=False).indices.sort(dim=-1).values
        unary_NK = logits_NV.gather(-1, candidates_NK).float()
        first_1KR = self._predecessors_VR[bonus].expand(1, self._top_k, -1)
        before_NKR = torch.cat((first_1KR, self._predecessors_VR[candidates_NK[:-1]]))
        projected_NR = functional.linear(hidden_ND, self._projection_RD)
        left_NKR = before_NKR.float() * projected_NR[:, None].float()
        right_NKR = self._successors_VR[candidates_NK].float()
        return unary_NK[:, None] + left_NKR @ right_NKR.transpose(1, 2), candidates_NK


def _follow(next_NK: torch.Tensor) -> torch.Tensor:
    """Return the places of a walk, int64 ``[N]``: row n of the table says what follows each place of row n - 1."""
    path = [next_NK[0, :1]]
    for row_K in next_NK[1:].unbind():
        path.append(row_K.index_select(0, path[-1]))
    return torch.cat(path)


def _after(chosen_N: torch.Tensor, pairs_NKK: torch.Tensor) -> torch.Tensor:
    """Return every row of a table of pairs at the predecessor a walk chose, ``[N, K]``."""
    before_N = functional.pad(chosen_N[:-1], (1, 0))
    return pairs_NKK.gather(1, before_N[:, None, None].expand(-1, 1, pairs_NKK.shape[2]))[:, 0]
