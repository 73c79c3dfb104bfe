"""The DFlash drafter on MLX, v1 and 2.

All layers' context keys and values are computed from one projected vector per committed position, so they live in one
buffer ``[layers, kv heads, positions, head_dim]`` and a step appends to it with one matrix product. The rules (layer
directions, windows, names) come from ``engine.drafters.dflash``.

Shapes: L layers, N rows, C context positions, D hidden size, H query heads, G kv heads, E head_dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from engine.backends.mlx import sampling
from engine.backends.mlx.caches import window_cache
from engine.backends.mlx.dflash.convolution import convolution
from engine.backends.mlx.dflash.rotary import rotation
from engine.backends.mlx.dflash.selector import Selector
from engine.backends.mlx.target import MlxTarget
from engine.drafters.dflash import FLUSH_ROWS, DFlashConfig, LayerRule
from engine.drafters.dflash_model import DFlashDrafter, DFlashModel, LayerWeights, context_projections, layer_weights
from engine.types import Draft, DrafterInfo
from engine.verification.rejection import Sampling

CONTEXT_SLACK_ROWS = 32
"""Spare rows of the context: a capped context is moved once in so many committed tokens."""


class MlxDFlash(DFlashModel):
    """The drafter's weights, bound to the target whose embedding and head it borrows."""

    def __init__(
        self, config: DFlashConfig, tensors: dict[str, mx.array], target: MlxTarget, info: DrafterInfo
    ) -> None:
        super().__init__(config, info)
        self.target = target
        # One dtype throughout: a 16-bit drafter of another kind than its target would promote every product to fp32.
        # Features times a drafter's weights leave float16's range, so beside such a target it computes in bfloat16.
        self.dtype = mx.bfloat16 if target.dtype == mx.float16 else target.dtype
        named = {name: tensor.astype(self.dtype) for name, tensor in tensors.items()}
        self.fc = named["fc.weight"].T
        self.hidden_norm = named["hidden_norm.weight"]
        self.norm = named["norm.weight"]
        self.layers = [layer_weights(named, index, _joined) for index in range(len(config.layers))]
        sides, norms = context_projections(named, len(config.layers))
        self.context_kv = _joined(sides)
        self.context_k_norm = mx.stack(norms)[:, None, None]
        self.selector = None if config.second is None else Selector(config.second, named)
        self.rope = rotation(config)
        convolutions = [conv for layer in self.layers for conv in (layer.attention_conv, layer.mlp_conv) if conv]
        weights = [vars(part) for part in (*self.layers, *convolutions)]
        mx.eval(self.fc, self.context_kv, self.context_k_norm, weights)

    def start(self, settings: Sampling | None) -> MlxDFlashDrafter:
        """Start with an empty context."""
        return MlxDFlashDrafter(self, settings)

    def context(self, features_NF: mx.array) -> mx.array:
        """Return the one vector ``[N, D]`` that all layers' context keys and values are made of."""
        return mx.fast.rms_norm(features_NF.astype(self.dtype) @ self.fc, self.hidden_norm, self.config.rms_norm_eps)

    def context_rows(self, context_ND: mx.array) -> mx.array:
        """Return all layers' context keys, then their values, neither normed nor rotated ``[N, 2 * L * G * E]``."""
        return context_ND @ self.context_kv

    def project_context(self, features_NF: mx.array, start: int) -> tuple[mx.array, mx.array]:
        """Return every layer's context keys and values ``[L, G, N, E]`` for positions from ``start`` on."""
        config, rows = self.config, features_NF.shape[0]
        both = self.context_rows(self.context(features_NF)).reshape(
            rows, 2, len(self.layers), config.kv_head_count, config.head_dim
        )
        keys, values = both.transpose(1, 2, 3, 0, 4)
        keys = mx.fast.rms_norm(keys, None, config.rms_norm_eps) * self.context_k_norm
        return self.rope(keys, offset=start), values

    def hidden_rows(
        self,
        ids_N: mx.array,
        position: int,
        context: tuple[mx.array, mx.array] | None,
    ) -> mx.array:
        """Run the block ``ids_N`` whose first row sits at ``position``; return normed hidden states ``[N, D]``."""
        config = self.config
        x_ND = self.target.family.embed(ids_N).astype(self.dtype)
        if config.input_embedding_scale != 1.0:
            x_ND = x_ND * config.input_embedding_scale
        rows, shown = ids_N.shape[0], 0 if context is None else context[0].shape[2]
        masks = {rule: _mask(rule, rows, shown) for rule in set(config.layers)}
        for index, (layer, rule) in enumerate(zip(self.layers, config.layers, strict=True)):
            normed = mx.fast.rms_norm(x_ND, layer.input_norm, config.rms_norm_eps)
            attention_conv = convolution(layer.attention_conv, normed)
            if attention_conv is not None:
                normed = attention_conv(0, normed)
            queries, keys, values = self._heads(layer, normed, position)
            if context is not None:
                keys = mx.concatenate([context[0][index][None], keys], axis=2)
                values = mx.concatenate([context[1][index][None], values], axis=2)
            attended = mx.fast.scaled_dot_product_attention(
                queries, keys, values, scale=config.head_dim**-0.5, mask=masks[rule]
            )
            mixed = attended[0].transpose(1, 0, 2).reshape(rows, -1) @ layer.out
            x_ND = x_ND + (mixed if attention_conv is None else attention_conv(1, mixed))
            x_ND = x_ND + self._mlp(layer, mx.fast.rms_norm(x_ND, layer.post_norm, config.rms_norm_eps))
        return mx.fast.rms_norm(x_ND, self.norm, config.rms_norm_eps)

    def logits(self, hidden_ND: mx.array) -> mx.array:
        """Return the target head's logits with the drafter's own multiplier and soft cap."""
        config = self.config
        logits = self.target.family.head(hidden_ND.astype(self.target.dtype), soft_capped=False)
        if config.output_multiplier != 1.0:
            logits = logits * config.output_multiplier
        return logits if config.softcap is None else mx.tanh(logits / config.softcap) * config.softcap

    def _mlp(self, layer: LayerWeights[mx.array], normed_ND: mx.array) -> mx.array:
        """Return what the gated sublayer adds to ``[N, D]`` rows, convolved on both sides in DFlash 2."""
        convolve = convolution(layer.mlp_conv, normed_ND)
        if convolve is not None:
            normed_ND = convolve(0, normed_ND)
        gate, up = mx.split(normed_ND @ layer.gate_up, 2, axis=-1)
        added = (gate * mx.sigmoid(gate) * up) @ layer.down
        return added if convolve is None else convolve(1, added)

    def _heads(
        self, layer: LayerWeights[mx.array], normed_ND: mx.array, position: int
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Return rotated queries ``[1, H, N, E]``, rotated keys and values ``[1, G, N, E]`` of block rows."""
        config, rows = self.config, normed_ND.shape[0]
        joined = (normed_ND @ layer.qkv).reshape(rows, -1, config.head_dim).transpose(1, 0, 2)[None]
        edges = [config.head_count, config.head_count + config.kv_head_count]
        queries, keys, values = mx.split(joined, edges, axis=1)
        queries = self.rope(mx.fast.rms_norm(queries, layer.q_norm, config.rms_norm_eps), offset=position)
        return queries, self.rope(mx.fast.rms_norm(keys, layer.k_norm, config.rms_norm_eps), offset=position), values


class MlxDFlashDrafter(DFlashDrafter):
    """The context of one sequence: append-only, capped to the newest ``context_tokens`` positions.

    ``one_graph`` leaves a draft unevaluated until the verify forward is read: a study, not a way to decode.
    """

    def __init__(self, model: MlxDFlash, settings: Sampling | None) -> None:
        super().__init__(settings)
        self.model = model
        self.one_graph = False
        self.context = window_cache(model.config.context_tokens + 1, CONTEXT_SLACK_ROWS)
        self._shown: tuple[mx.array, mx.array] | None = None

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Queue one pass over ``[bonus, mask * count]`` and start evaluating it; row j proposes position + j."""
        del wait_s
        config = self.model.config
        count = min(count, config.block_size - 1)
        ids = mx.array([bonus] + [config.mask_token_id] * count, mx.int32)
        hidden = self.model.hidden_rows(ids, position, self.shown())[1:]
        tokens, probs = self._chosen(bonus, hidden, self.model.logits(hidden))
        # Drafter and target stay two evaluations: one fused graph of both is far slower on Metal at long contexts.
        if not self.one_graph:
            mx.async_eval(tokens)
        self._forwards += 1
        return Draft(tokens=tokens, count=count, probs=probs)

    def _chosen(self, bonus: int, hidden: mx.array, logits: mx.array) -> tuple[mx.array, mx.array | None]:
        """Return one id a row, and what they were drawn from when they were drawn."""
        selector = self.model.selector
        if self._settings is None or self._uniforms is None:
            return mx.argmax(logits, axis=-1) if selector is None else selector.best(bonus, hidden, logits), None
        uniforms = mx.array(self._uniforms.take(logits.shape[0]), mx.float32)
        if selector is not None:
            return selector.drawn(bonus, hidden, logits, self._settings.temperature, uniforms)
        probs = sampling.shape(logits, self._settings)
        return sampling.draw(probs, uniforms), probs

    def _flush_early(self) -> None:
        """Project and let it compute in the background."""
        self._flush()
        mx.async_eval(*self.context.buffers())

    def shown(self) -> tuple[mx.array, mx.array] | None:
        """Return keys and values ``[L, G, C, E]`` of every committed position within the cap, None before the first."""
        self._flush()
        return self._shown

    def measured_bytes(self) -> int:
        """Return the bytes of the context buffers with every committed row in them: no count of rows that wait."""
        self._flush()
        return self.context.measured_bytes()

    def _project(self, waiting: list[mx.array]) -> None:
        features = waiting[0] if len(waiting) == 1 else mx.concatenate(waiting)
        keys, values = self.model.project_context(features, self.context.length)
        # In pieces that the context has room for, lest its buffer change its size; a prefill's chunk is as it is.
        rows = keys.shape[-2]
        piece = CONTEXT_SLACK_ROWS if rows <= FLUSH_ROWS else rows
        for begin in range(0, rows, piece):
            end = begin + piece
            shown = self.context.update_and_fetch(keys[..., begin:end, :], values[..., begin:end, :])
        keys, values = shown
        cap = self.model.config.context_tokens
        self._shown = (keys[..., -cap:, :], values[..., -cap:, :])

    def _begin_context(self, position: int) -> None:
        self.context.begin(position)

    def _rewind_context(self, length: int) -> None:
        self.context.rewind(length)
        _, (keys, values) = self.context.kept()
        cap = self.model.config.context_tokens
        self._shown = (keys[..., -cap:, :], values[..., -cap:, :]) if length else None


def _joined(projections: Sequence[mx.array]) -> mx.array:
    """Return projections of one input as one matrix to multiply with."""
    return mx.concatenate(list(projections)).T


def _mask(rule: LayerRule, rows: int, shown: int) -> Any:
    """Return which of ``shown`` context keys and ``rows`` block keys each block row sees, None for all."""
    if rule.reach is None and not rule.causal:
        return None
    distance = mx.arange(shown, shown + rows)[:, None] - mx.arange(shown + rows)[None]
    seen = mx.ones(distance.shape, mx.bool_)
    if rule.reach is not None:
        seen = (distance <= rule.reach) & (distance >= -rule.reach)
    return seen & (distance >= 0) if rule.causal else seen
