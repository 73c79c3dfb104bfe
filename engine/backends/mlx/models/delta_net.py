"""Gated delta net layers on MLX: the recurrence of Qwen3-Next and Qwen3.5 with a state that can be put back.

The weights, the convolution and the recurrence are mlx-lm's. Its own layer gives its cache nothing of what the
recurrence reads, so the rows are brought to the recurrence here and kept until the next crop. The recurrence runs row
by row, on every device, so a block leaves what decoding its rows one by one would have left.

Shapes: S rows, C channels of queries, keys and values, T rows of the convolution's tail, H heads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gated_delta import gated_delta_update, normalize_qk

from engine.backends.recurrent import Arrays, RecurrentState

NORM_EPS = 1e-6
"""mlx-lm's for the norm of queries and keys."""


def new_state(net: Any, appends: int | None) -> RecurrentState:
    """Return the empty state of a layer's ``linear_attn``; a crop may reach back over ``appends`` appends."""
    return RecurrentState(partial(_replayed, net), lambda array: int(array.nbytes), appends)


def run_layer(layer: Any, hidden: mx.array, held: Any) -> mx.array:
    """Return what a recurrent layer makes of ``[1, S, D]`` rows, and move its ``RecurrentState`` behind them."""
    hidden = hidden + _mixed(layer.linear_attn, layer.input_layernorm(hidden), held)
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


def _mixed(net: Any, rows: mx.array, held: RecurrentState) -> mx.array:
    """Return the recurrence's output for normed rows ``[1, S, D]``."""
    count = rows.shape[1]
    channels, gate, beta, step = _projected(net, rows)
    tail, matrix = held.state or (mx.zeros((1, net.conv_kernel_size - 1, net.conv_dim), rows.dtype), None)
    joined = mx.concatenate([tail, channels], axis=1)
    parts = mx.split(nn.silu(net.conv1d(joined)), [net.key_dim, 2 * net.key_dim], axis=-1)
    sizes = (net.head_k_dim, net.head_k_dim, net.head_v_dim)
    queries, keys, values = (part.reshape(1, count, -1, size) for part, size in zip(parts, sizes, strict=True))
    queries, keys = normalize_qk(queries, keys, inv_scale=net.head_k_dim**-0.5, eps=NORM_EPS)
    read = (joined, keys, values, step, beta)
    output, matrix = _recurred(net, queries, read, matrix, count)
    held.append((mx.contiguous(joined[:, count:]), matrix), read, count)
    normed = net.norm(output, gate.reshape(1, count, -1, net.head_v_dim))
    return net.out_proj(normed.reshape(1, count, -1))


def _projected(net: Any, rows: mx.array) -> tuple[mx.array, ...]:
    """Return channels ``[1, S, C]``, the output's gate, and the logits of beta and of the step, each ``[1, S, H]``."""
    if "in_proj_qkv" in net:
        return net.in_proj_qkv(rows), net.in_proj_z(rows), net.in_proj_b(rows), net.in_proj_a(rows)
    parts = net.fix_query_key_value_ordering(net.in_proj_qkvz(rows), net.in_proj_ba(rows))
    queries, keys, values, gate, beta, step = parts
    return mx.concatenate([part.flatten(2) for part in (queries, keys, values)], axis=-1), gate, beta, step


def _recurred(
    net: Any, queries: mx.array, read: Arrays, matrix: mx.array | None, rows: int
) -> tuple[mx.array, mx.array]:
    """Return the recurrence's output for the first ``rows`` rows and the state behind them."""
    keys, values, step, beta = (part[:, :rows] for part in read[1:])
    output, state = gated_delta_update(
        queries[:, :rows], keys, values, step, beta, net.A_log, net.dt_bias, matrix, use_kernel=not net.training
    )
    return output, state


def _replayed(net: Any, before: Arrays | None, read: Arrays, rows: int) -> Arrays:
    """Return the state behind the first ``rows`` rows of an append."""
    joined, keys = read[0], read[1]
    _, matrix = _recurred(net, keys, read, None if before is None else before[1], rows)
    return mx.contiguous(joined[:, rows : rows + net.conv_kernel_size - 1]), matrix
