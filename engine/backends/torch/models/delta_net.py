"""Gated delta net layers on torch: the recurrence of Qwen3-Next and Qwen3.5 with a state that can be put back.

The weights, the convolution and the recurrence are transformers'. Its own forward gives its cache nothing of what the
recurrence reads, so the rows are brought to the recurrence here and kept until the next crop.

Shapes: S rows, C channels of queries, keys and values, T columns of the convolution's tail, H heads.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Protocol

import torch

from engine.backends.recurrent import Append, Arrays, HeldState, RecurrentState

STEPWISE_ROWS = 32
"""Blocks of at most so many rows run row by row, as decoding them one by one would; longer ones in chunks."""


def new_state(net: Any, appends: int | None) -> RecurrentState:
    """Return the empty state of a layer's ``linear_attn``; a crop may reach back over ``appends`` appends."""
    return RecurrentState(partial(_replayed, net), lambda array: int(array.nbytes), appends)


class State(Protocol):
    """Where a layer finds its state and leaves the next one: a ``RecurrentState``, or one at fixed addresses."""

    @property
    def state(self) -> Arrays | None:
        """The arrays, None before the first row."""

    def append(self, state: Arrays, read: Arrays, rows: int) -> None:
        """Go on with ``state``, which ``rows`` more rows left; ``read`` is what the recurrence read from them."""


class FixedState:
    """One layer's state at fixed addresses, so that a recorded forward finds it there at every position.

    Kept are the state before the last block, the state behind it, and what the recurrence read from its rows.
    """

    def __init__(self, net: Any, like: Arrays, block_rows: int) -> None:
        """Make room for states of the shapes of ``like`` and blocks of ``block_rows`` rows at most."""
        tail, matrix = like
        rows, key_heads, value_heads = (1, block_rows), net.key_dim // net.head_k_dim, net.num_v_heads
        self._net, self._count = net, torch.arange(block_rows, device=tail.device)
        self._now = tuple(torch.zeros_like(side) for side in like)
        self._before = tuple(torch.zeros_like(side) for side in like)
        self._read = (
            tail.new_zeros((1, net.conv_dim, tail.shape[-1] + block_rows)),
            tail.new_zeros((*rows, key_heads, net.head_k_dim)),
            tail.new_zeros((*rows, value_heads, net.head_v_dim)),
            matrix.new_zeros((*rows, value_heads), dtype=torch.float32),
            tail.new_zeros((*rows, value_heads)),
        )

    @property
    def state(self) -> Arrays:
        """The arrays behind the last block."""
        return self._now

    def append(self, state: Arrays, read: Arrays, rows: int) -> None:
        """Go on with ``state``, and keep what a crop into these rows needs."""
        del rows
        for before, now, after in zip(self._before, self._now, state, strict=True):
            before.copy_(now)
            now.copy_(after)
        for axis, kept, part in zip((2, 1, 1, 1, 1), self._read, read, strict=True):
            kept.narrow(axis, 0, part.shape[axis]).copy_(part)

    def take_back(self, kept: torch.Tensor) -> None:
        """Make it the state behind the first ``kept`` rows of the last block, int64 ``[1]`` on the device.

        Rows behind those are read as ones that neither decay nor write, which leaves every bit as it is.
        """
        gone = self._count >= kept
        joined, *parts = self._read
        masked = [part.masked_fill(gone.view(1, -1, *[1] * (part.dim() - 2)), 0) for part in parts]
        _, matrix = _recurred(self._net, masked[0], (joined, *masked), self._before[1], len(self._count))
        columns = kept + torch.arange(self._now[0].shape[-1], device=kept.device)
        self._now[0].copy_(joined.index_select(2, columns))
        self._now[1].copy_(matrix)

    def load(self, held: HeldState) -> None:
        """Replace the state."""
        for now, other in zip(self._now, held.state, strict=True):
            now.copy_(other)

    def held(self, begin: int, rows: int) -> HeldState:
        """Return a copy of the state, and of the last append where ``rows`` of it, from ``begin`` on, are kept."""
        before, read = (tuple(side.clone() for side in sides) for sides in (self._before, self._read))
        return HeldState(tuple(now.clone() for now in self._now), Append(begin, before, read) if rows else None)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(side.untyped_storage().nbytes() for side in (*self._now, *self._before, *self._read))


def run_layer(layer: Any, hidden: torch.Tensor, held: State) -> torch.Tensor:
    """Return what a recurrent layer makes of ``[1, S, D]`` rows, and move its state behind them."""
    hidden = hidden + _mixed(layer.linear_attn, layer.input_layernorm(hidden), held)
    fed = layer.mlp(layer.post_attention_layernorm(hidden))
    # Experts come with the scores of their router.
    return hidden + (fed[0] if isinstance(fed, tuple) else fed)


def _mixed(net: Any, rows: torch.Tensor, held: State) -> torch.Tensor:
    """Return the recurrence's output for normed rows ``[1, S, D]``."""
    count = rows.shape[1]
    channels, gate, beta, step = _projected(net, rows)
    tail, matrix = held.state or (channels.new_zeros((1, net.conv_dim, net.conv_kernel_size - 1)), None)
    joined = torch.cat([tail, channels.transpose(1, 2)], dim=-1)
    library = vars(sys.modules[type(net).__module__])
    weight = net.conv1d.weight.squeeze(1)
    convolved = library["causal_conv1d_fn"](joined, weight, net.conv1d.bias, activation=net.activation)
    convolved = convolved[:, :, -count:].transpose(1, 2)
    split = convolved.split([net.key_dim, net.key_dim, net.value_dim], dim=-1)
    sizes = (net.head_k_dim, net.head_k_dim, net.head_v_dim)
    queries, keys, values = (part.unflatten(-1, (-1, size)) for part, size in zip(split, sizes, strict=True))
    # In fp32, as transformers has it: in half precision the decay of a fast head would be infinite.
    decay = -net.A_log.float().exp() * torch.nn.functional.softplus(step.float() + net.dt_bias)
    read = (joined, keys, values, decay, beta.sigmoid())
    output, matrix = _recurred(net, queries, read, matrix, count)
    held.append((joined[:, :, count:].contiguous(), matrix), read, count)
    normed = net.norm(output.reshape(-1, net.head_v_dim), gate.reshape(-1, net.head_v_dim))
    mixed: torch.Tensor = net.out_proj(normed.reshape(1, count, -1))
    return mixed


def _projected(net: Any, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return channels ``[1, S, C]``, the output's gate, and the logits of beta and of the step, each ``[1, S, H]``."""
    if hasattr(net, "in_proj_qkv"):
        return net.in_proj_qkv(rows), net.in_proj_z(rows), net.in_proj_b(rows), net.in_proj_a(rows)
    parts = net.fix_query_key_value_ordering(net.in_proj_qkvz(rows), net.in_proj_ba(rows))
    queries, keys, values, gate, beta, step = parts
    return torch.cat([part.flatten(2) for part in (queries, keys, values)], dim=-1), gate, beta, step


def _recurred(
    net: Any, queries: torch.Tensor, read: Arrays, matrix: torch.Tensor | None, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the recurrence's output for the first ``rows`` rows and the state behind them."""
    _, keys, values, decay, beta = read
    library = vars(sys.modules[type(net).__module__])
    stepwise = matrix is not None and rows <= STEPWISE_ROWS
    rule = library["torch_recurrent_gated_delta_rule" if stepwise else "torch_chunk_gated_delta_rule"]
    output, state = rule(
        queries[:, :rows],
        keys[:, :rows],
        values[:, :rows],
        g=decay[:, :rows],
        beta=beta[:, :rows],
        initial_state=matrix,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    return output, state


def _replayed(net: Any, before: Arrays | None, read: Arrays, rows: int) -> Arrays:
    """Return the state behind the first ``rows`` rows of an append."""
    joined, keys = read[0], read[1]
    with torch.inference_mode():
        _, matrix = _recurred(net, keys, read, None if before is None else before[1], rows)
    return joined[:, :, rows : rows + net.conv_kernel_size - 1].contiguous(), matrix
