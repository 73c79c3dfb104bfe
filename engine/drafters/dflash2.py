"""What DFlash 2 adds to a DFlash drafter: settings, tensors and the rules both backends follow.

Knows no tensors. DFlash 2 keeps the pass over [bonus, mask, …] and adds two parts (inco.ai/blog/dflash2, the public
z-lab/dflash repository).

Convolution: before and after the attention and before and after the MLP of every layer, rows of the block are mixed
with the rows just before them, ``out_t = sum_j (base[side, j] + correction_t[side, j]) * x_{t-j}``, channel by channel.
1. Rows before the block count as zero; row 0, the bonus, takes part. Context rows are never convolved: their keys and
   values come from the projected features alone, so they stay append-only.
2. Side 0 is applied to the normed input of the sublayer, side 1 to its output before the residual sum. Both
   corrections come from one projection of the normed, not yet convolved input.
3. Tap 0 weighs the row itself, tap j the row j before it. A row of the projection stands for (side, tap, group) in that
   order; ``conv_group_size`` neighbouring channels share a group's correction.

Selector: the ``selector_top_k`` likeliest ids of every row are scored against the token before them,
``S_t(a, b) = U_t(b) + <A[a] * (W_h y_t), B[b]>`` with U the logits after multiplier and soft cap, and a walk from
the bonus takes at every row the best one, or draws one.
4. y_t is the normed hidden state that also went into the head. The predecessor is the token the walk chose.
5. Candidates stand in ascending id order, so the lowest of equals wins and a draw inverts the same cumulative
   distribution as one over the whole vocabulary.
6. A draw is from the softmax of S / temperature over the candidates; top-k and top-p shape only the target's side.
7. ``is_causal`` speaks for full-attention layers as well, where v1 lets it speak for sliding ones alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelConfigError

ARCHITECTURE = "DFlash2DraftModel"
CONVOLUTIONS = ("attention_conv", "mlp_conv")
CODEBOOKS = ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook")
_FIELDS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


@dataclass(frozen=True, slots=True)
class DFlash2Config:
    """A validated configuration of both parts. Sizes are counts: taps, channels, code length, candidates."""

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int

    def tensor_shapes(self, hidden_size: int, layer_count: int, vocab_size: int) -> dict[str, tuple[int, ...]]:
        """Return the tensors a checkpoint holds beside those of v1, by canonical name."""
        groups = hidden_size // self.conv_group_size
        shapes: dict[str, tuple[int, ...]] = {
            "candidate_selector.hidden_projection.weight": (self.selector_rank, hidden_size)
        }
        shapes |= dict.fromkeys(CODEBOOKS, (vocab_size, self.selector_rank))
        for index in range(layer_count):
            for name in CONVOLUTIONS:
                prefix = f"layers.{index}.{name}."
                shapes[prefix + "base_kernel"] = (2, self.conv_kernel_size, hidden_size)
                shapes[prefix + "kernel_projection.weight"] = (2 * self.conv_kernel_size * groups, hidden_size)
        return shapes


def parse(read: Callable[[str], Any], hidden_size: int, block_size: int, vocab_size: int | None) -> DFlash2Config:
    """Read the settings of both parts; ``read`` returns a config field, None when it is absent.

    Raises:
        ModelConfigError: If a field is missing or cannot be honoured.
    """
    values = {name: read(name) for name in _FIELDS}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelConfigError(
                f"drafter {name} is {value!r}; {ARCHITECTURE} needs a positive integer in dflash_config or at top level"
            )
    config = DFlash2Config(**values)
    if config.conv_kernel_size > block_size:
        raise ModelConfigError(
            f"drafter conv_kernel_size is {config.conv_kernel_size}; expected at most block_size = {block_size}"
        )
    if hidden_size % config.conv_group_size:
        raise ModelConfigError(
            f"drafter conv_group_size is {config.conv_group_size}; expected a divisor of hidden_size = {hidden_size}"
        )
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, int):
        raise ModelConfigError(
            f"drafter vocab_size is {vocab_size!r}; {ARCHITECTURE} needs it: its codebooks have a row per token"
        )
    if config.selector_top_k > vocab_size:
        raise ModelConfigError(
            f"drafter selector_top_k is {config.selector_top_k}; expected at most vocab_size = {vocab_size}"
        )
    return config
