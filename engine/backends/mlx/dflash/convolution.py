"""DFlash 2's convolution over the rows of a block, on MLX; the rules are in ``engine.drafters.dflash2``.

Shapes: N rows, D hidden size, T taps, G groups, C channels of a group (D = G * C).
"""

from __future__ import annotations

import mlx.core as mx

from engine.drafters.dflash_model import ConvWeights


class BlockConvolution:
    """The two kernels of one sublayer for one block, both made from the sublayer's normed input."""

    def __init__(self, weights: ConvWeights[mx.array], input_ND: mx.array) -> None:
        sides, taps, hidden = weights.base.shape
        corrections = (input_ND @ weights.projection).reshape(input_ND.shape[0], sides, taps, -1, 1)
        groups = corrections.shape[3]
        self._kernels_NSTGC = weights.base.reshape(sides, taps, groups, hidden // groups) + corrections

    def __call__(self, side: int, x_ND: mx.array) -> mx.array:
        """Return ``x_ND`` mixed with the rows before it, side 0 before the sublayer, side 1 after it."""
        rows, _, taps, groups, channels = self._kernels_NSTGC.shape
        padded = mx.pad(x_ND, [(taps - 1, 0), (0, 0)]).reshape(rows + taps - 1, groups, channels)
        kernels = self._kernels_NSTGC[:, side]
        mixed = kernels[:, 0] * padded[taps - 1 :]
        for tap in range(1, taps):
            mixed = mixed + kernels[:, tap] * padded[taps - 1 - tap : -tap]
        return mixed.reshape(rows, -1)


def convolution(weights: ConvWeights[mx.array] | None, input_ND: mx.array) -> BlockConvolution | None:
    """Return a sublayer's convolution for one block, None when the drafter has none."""
    return None if weights is None else BlockConvolution(weights, input_ND)
