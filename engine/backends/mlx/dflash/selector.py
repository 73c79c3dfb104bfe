"""DFlash 2's pairwise selector on MLX; the rules are in ``engine.drafters.dflash2``.

Every pair of neighbouring candidates is scored in one product, and what follows each candidate is settled for all of
them at once; the walk itself only follows a table, one lookup a row, inside the same lazy graph.

Shapes: N rows, V vocabulary, K candidates, R code length, D hidden size; in N, K, K the predecessor comes first.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from engine.backends.mlx import sampling
from engine.drafters.dflash2 import CODEBOOKS, DFlash2Config


class Selector:
    """The codebooks of one drafter."""

    def __init__(self, config: DFlash2Config, named: Mapping[str, mx.array]) -> None:
        self._top_k = config.selector_top_k
        self._predecessors_VR, self._successors_VR = (named[name] for name in CODEBOOKS)
        self._projection_DR = named["candidate_selector.hidden_projection.weight"].T
        mx.eval(self._predecessors_VR, self._successors_VR, self._projection_DR)

    def best(self, bonus: int, hidden_ND: mx.array, logits_NV: mx.array) -> mx.array:
        """Return the greedy walk from ``bonus``, int32 ``[N]``."""
        scores_NKK, candidates_NK = self.scores(bonus, hidden_ND, logits_NV)
        chosen_N = _follow(mx.argmax(scores_NKK, axis=-1))
        return mx.take_along_axis(candidates_NK, chosen_N[:, None], axis=-1)[:, 0]

    def drawn(
        self, bonus: int, hidden_ND: mx.array, logits_NV: mx.array, temperature: float, uniforms_N: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Return a drawn walk, int32 ``[N]``, and what each of its tokens was drawn from, float32 ``[N, V]``."""
        scores_NKK, candidates_NK = self.scores(bonus, hidden_ND, logits_NV)
        rows, kept = candidates_NK.shape
        probs_NKK = mx.softmax(scores_NKK / temperature, axis=-1, precise=True)
        draws = sampling.draw(probs_NKK.reshape(-1, kept), mx.repeat(uniforms_N, kept))
        chosen_N = _follow(draws.reshape(rows, kept))
        before_N = mx.pad(chosen_N[:-1], (1, 0))
        probs_NK = mx.take_along_axis(probs_NKK, before_N[:, None, None], axis=1)[:, 0]
        probs_NV = mx.put_along_axis(mx.zeros(logits_NV.shape), candidates_NK, probs_NK, axis=-1)
        return mx.take_along_axis(candidates_NK, chosen_N[:, None], axis=-1)[:, 0], probs_NV

    def scores(self, bonus: int, hidden_ND: mx.array, logits_NV: mx.array) -> tuple[mx.array, mx.array]:
        """Return S of every candidate after every predecessor, float32 ``[N, K, K]``, and the candidates ``[N, K]``.

        The bonus is the only predecessor of row 0 and stands there K times.
        """
        likeliest = mx.argpartition(-logits_NV, kth=self._top_k - 1, axis=-1)[:, : self._top_k]
        candidates_NK = mx.sort(likeliest.astype(mx.int32), axis=-1)
        unary_NK = mx.take_along_axis(logits_NV, candidates_NK, axis=-1).astype(mx.float32)
        codes_R = self._predecessors_VR[bonus]
        first_1KR = mx.broadcast_to(codes_R, (1, self._top_k, codes_R.shape[0]))
        before_NKR = mx.concatenate([first_1KR, self._predecessors_VR[candidates_NK[:-1]]])
        projected_NR = (hidden_ND @ self._projection_DR).astype(mx.float32)
        left_NKR = before_NKR.astype(mx.float32) * projected_NR[:, None]
        right_NKR = self._successors_VR[candidates_NK].astype(mx.float32)
        return unary_NK[:, None] + left_NKR @ right_NKR.transpose(0, 2, 1), candidates_NK


def _follow(next_NK: mx.array) -> mx.array:
    """Return the places of a walk, ``[N]``: row n of the table says what follows each place of row n - 1."""
    path = [next_NK[0, :1]]
    for row in range(1, next_NK.shape[0]):
        path.append(next_NK[row][path[-1]])
    return mx.concatenate(path)
