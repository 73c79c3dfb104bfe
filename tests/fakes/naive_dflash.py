"""DFlash v1 written out position by position in float64: no cache, no fused weights, no masks, one query at a time."""

from __future__ import annotations

import math
from typing import Any

import torch

from engine.drafters.dflash import DFlashConfig


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def _rope(x: torch.Tensor, position: int, inverse: torch.Tensor, scale: float) -> torch.Tensor:
    """Rotate pairs (i, i + half) of ``x`` ``[heads, head_dim]``."""
    half = x.shape[-1] // 2
    cos, sin = (position * inverse).cos() * scale, (position * inverse).sin() * scale
    first, second = x[:, :half], x[:, half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class NaiveDFlash:
    """The paper's formulas over named tensors."""

    def __init__(self, config: DFlashConfig, tensors: dict[str, torch.Tensor], rope: tuple[Any, float] | None = None):
        self.config = config
        self.w = {name: tensor.double() for name, tensor in tensors.items()}
        half = config.head_dim // 2
        default = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        self.inverse, self.scale = (default, 1.0) if rope is None else (rope[0].double(), rope[1])

    def hidden_rows(self, embedded: torch.Tensor, features: torch.Tensor, position: int) -> torch.Tensor:
        """Return ``[rows, D]`` for a block of raw embedding rows at ``position`` after ``position`` feature rows."""
        config, w = self.config, self.w
        oldest = max(0, position - config.context_tokens)
        context = _norm(features.double() @ w["fc.weight"].T, w["hidden_norm.weight"], config.rms_norm_eps)
        x = embedded.double() * config.input_embedding_scale
        for index, rule in enumerate(config.layers):
            u = _norm(x, w[f"layers.{index}.input_layernorm.weight"], config.rms_norm_eps)
            keys, values = {}, {}
            for place in range(oldest, position + len(x)):
                source = context[place] if place < position else u[place - position]
                keys[place] = self._heads(source, index, "k", place)
                values[place] = (w[f"layers.{index}.self_attn.v_proj.weight"] @ source).view(-1, config.head_dim)
            attended = [
                self._attend(self._heads(u[row], index, "q", position + row), position + row, keys, values, rule)
                for row in range(len(x))
            ]
            x = x + torch.stack(attended) @ w[f"layers.{index}.self_attn.o_proj.weight"].T
            u = _norm(x, w[f"layers.{index}.post_attention_layernorm.weight"], config.rms_norm_eps)
            gate = u @ w[f"layers.{index}.mlp.gate_proj.weight"].T
            up = u @ w[f"layers.{index}.mlp.up_proj.weight"].T
            x = x + (gate * torch.sigmoid(gate) * up) @ w[f"layers.{index}.mlp.down_proj.weight"].T
        return _norm(x, w["norm.weight"], config.rms_norm_eps)

    def _heads(self, source: torch.Tensor, index: int, side: str, position: int) -> torch.Tensor:
        heads = (self.w[f"layers.{index}.self_attn.{side}_proj.weight"] @ source).view(-1, self.config.head_dim)
        normed = _norm(heads, self.w[f"layers.{index}.self_attn.{side}_norm.weight"], self.config.rms_norm_eps)
        return _rope(normed, position, self.inverse, self.scale)

    def _attend(self, query: torch.Tensor, position: int, keys: Any, values: Any, rule: Any) -> torch.Tensor:
        visible = [place for place in keys if not (rule.causal and place > position)]
        if rule.reach is not None:
            visible = [place for place in visible if abs(position - place) <= rule.reach]
        group = self.config.head_count // self.config.kv_head_count
        rows = []
        for head in range(self.config.head_count):
            scores = torch.stack([query[head] @ keys[place][head // group] for place in visible])
            weights = (scores / math.sqrt(self.config.head_dim)).softmax(0)
            rows.append(
                sum(weight * values[place][head // group] for weight, place in zip(weights, visible, strict=True))
            )
        return torch.cat(rows)
