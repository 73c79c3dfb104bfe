"""Gated delta net layers on torch: the recurrence of Qwen3-Next and Qwen3.5 with a state that can be put back.

The weights, the convolution and the recurrence are transformers'. Its own forward gives its cache nothing of what the
recurrence reads, so the rows are brought to the recurrence here and kept until the next crop.

Shapes: S rows, C channels of queries, keys and values, T columns of the convolution's tail, H heads.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

from engine.backends.recurrent import Arrays, RecurrentState

STEPWISE_ROWS = 32
"""Blocks of at most so many rows run row by row, as decoding them one by one would; longer ones in chunks."""


def new_state(net: Any, appends: int | None) -> RecurrentState:
    """Return the empty state of a layer's ``linear_attn``; a crop may reach back over ``appends`` appends."""
    return RecurrentState(partial(_replayed, net), lambda array: int(array.nbytes), appends)


def run_layer(layer: Any, hidden: torch.Tensor, held: RecurrentState) -> torch.Tensor:
    """Return what a recurrent layer makes of ``[1, S, D]`` rows, and move its state behind them."""
    hidden = hidden + _mixed(layer.linear_attn, layer.input_layernorm(hidden), held)
    fed = layer.mlp(layer.post_attention_layernorm(hidden))
    # Experts come with the scores of their router.
    return hidden + (fed[0] if isinstance(fed, tuple) else fed)


def _mixed(net: Any, rows: torch.Tensor, held: RecurrentState) -> torch.Tensor:
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
