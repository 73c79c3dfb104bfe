"""The DFlash v1 drafter as a torch module for training, with the published weight names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's customary name

from engine.errors import UsageError


@dataclass(frozen=True, slots=True)
class DrafterShape:
    """The sizes of a drafter that its target does not give it."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int


SHAPES: Final = {
    "small": DrafterShape(layers=2, heads=4, kv_heads=2, head_dim=32, intermediate=512),
    "60m": DrafterShape(layers=4, heads=8, kv_heads=4, head_dim=64, intermediate=2048),
    "smollm2": DrafterShape(layers=2, heads=9, kv_heads=3, head_dim=64, intermediate=1408),
}
"""By the name of their size."""


def drafter_config(
    target_config: dict[str, Any],
    size: str,
    block_size: int,
    mask_token_id: int,
    target_layers: Sequence[int] = (),
) -> dict[str, Any]:
    """Return config.json of a drafter for a target, which reads ``target_layers`` or such as are usual.

    `dflash_config.input_embedding_scale` is what every row of the target's RAW embedding table is multiplied with:
    sqrt(hidden_size) where the target scales its embedding (Gemma), else 1.

    Raises:
        UsageError: If the target has no such layers.
    """
    hidden = int(target_config["hidden_size"])
    layers = int(target_config["num_hidden_layers"])
    shape = SHAPES[size]
    if target_layers and target_layers[-1] >= layers:
        raise UsageError(
            f"--layers {','.join(map(str, target_layers))}: the target has {layers} layers, numbered from 0; name "
            "some of these"
        )
    scaled = str(target_config["model_type"]).startswith("gemma")
    target_layer_ids = [1, 3, 4] if layers == 6 else sorted({round(1 + i * (layers - 4) / 4) for i in range(5)})
    dflash: dict[str, Any] = {
        "block_size": block_size,
        "mask_token_id": mask_token_id,
        "target_layer_ids": list(target_layers) or target_layer_ids,
        "input_embedding_scale": math.sqrt(hidden) if scaled else 1.0,
        "causal": False,
    }
    if target_config.get("final_logit_softcapping"):
        dflash["final_logit_softcapping"] = float(target_config["final_logit_softcapping"])
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "float32",
        "hidden_size": hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_position_embeddings": int(target_config["max_position_embeddings"]),
        "rope_theta": 1_000_000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "layer_types": ["full_attention"] * shape.layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "is_causal": False,
        "block_size": block_size,
        "num_target_layers": layers,
        "vocab_size": int(target_config["vocab_size"]),
        "tie_word_embeddings": True,
        "dflash_config": dflash,
    }


class RmsNorm(nn.Module):
    """Root-mean-square norm with a learnt weight, computed in fp32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` [..., width] normalised and scaled, in fp32."""
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotary(positions: torch.Tensor, width: int, theta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin [..., width] of `positions` [...] in the rotate-half pairing."""
    inverse = theta ** (-torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width)
    angles = positions[..., None].float() * inverse
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary positions to `x` [rows, heads, length, width]; cos and sin are [rows, length, width]."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos[:, None] + turned * sin[:, None]


class Attention(nn.Module):
    """Queries from the block, keys and values from the context features and the block."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, self.width = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias=False)
        self.q_norm = RmsNorm(self.width, config["rms_norm_eps"])
        self.k_norm = RmsNorm(self.width, config["rms_norm_eps"])

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Attend `block` [rows, Q, D] to `context` [rows, S, D] followed by the block.

        Args:
            block: Normed block rows.
            context: Projected target features, not normed again.
            angles: cos and sin for positions of context then block, [rows, S + Q, width].
            mask: True where a query may look, [rows, 1, Q, S + Q].
        """
        rows, queries = block.shape[:2]
        both = torch.cat([context, block], dim=1)
        q = self.q_norm(self.q_proj(block).view(rows, queries, self.heads, self.width)).transpose(1, 2)
        k = self.k_norm(self.k_proj(both).view(rows, -1, self.kv_heads, self.width)).transpose(1, 2)
        v = self.v_proj(both).view(rows, -1, self.kv_heads, self.width).transpose(1, 2).to(q.dtype)
        cos, sin = angles
        q, k = rotate(q, cos[:, -queries:], sin[:, -queries:]), rotate(k, cos, sin)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        result: torch.Tensor = self.o_proj(out.transpose(1, 2).reshape(rows, queries, -1))
        return result


class Mlp(nn.Module):
    """The gated feed-forward sublayer, SwiGLU."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sublayer's output of `x` [..., D]."""
        result: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class Layer(nn.Module):
    """One layer of the drafter: attention over context and block, then the feed-forward sublayer."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Mlp(config)
        self.input_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.post_attention_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])

    def forward(
        self, x: torch.Tensor, context: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the block's residual stream [rows, Q, D] after this layer."""
        x = x + self.self_attn(self.input_layernorm(x), context, angles, mask)
        result: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class DFlashNetwork(nn.Module):
    """DFlash v1: one pass over [bonus, mask, …] rows conditioned on target features of the context."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        hidden = config["hidden_size"]
        features = len(config["dflash_config"]["target_layer_ids"])
        self.fc = nn.Linear(features * hidden, hidden, bias=False)
        self.hidden_norm = RmsNorm(hidden, config["rms_norm_eps"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(hidden, config["rms_norm_eps"])

    def forward(
        self,
        embedded: torch.Tensor,
        features: torch.Tensor,
        context_positions: torch.Tensor,
        block_positions: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return final hidden rows [rows, Q, D] of the block rows.

        Args:
            embedded: Scaled embeddings of the block rows [rows, Q, D].
            features: Target features of the context [rows, S, K * D].
            context_positions: Absolute positions [rows, S].
            block_positions: Absolute positions [rows, Q].
            mask: True where a query may look [rows, 1, Q, S + Q].
        """
        context = self.hidden_norm(self.fc(features))
        positions = torch.cat([context_positions, block_positions], dim=1)
        angles = rotary(positions, self.config["head_dim"], self.config["rope_theta"])
        x = embedded
        for layer in self.layers:
            x = layer(x, context, angles, mask)
        result: torch.Tensor = self.norm(x)
        return result
