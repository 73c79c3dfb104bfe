"""The DFlash drafter on torch, v1 and 2.

All layers' context keys and values are computed from one projected vector per committed position, so they live in one
buffer ``[layers, kv heads, positions, head_dim]`` and a step appends to it with one matrix product. The block's own
rows are written behind the context and never counted. The rules (layer directions, windows, names) come from
``engine.drafters.dflash``.

Shapes: L layers, N rows, C context positions, D hidden size, H query heads, G kv heads, E head_dim.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from engine.backends.caches import WindowRows
from engine.backends.torch import sampling
from engine.backends.torch.caches import window_cache
from engine.backends.torch.dflash.convolution import convolution
from engine.backends.torch.dflash.lender import LendingTarget
from engine.backends.torch.dflash.selector import Selector
from engine.backends.torch.models.rotary import RotaryTable, Table, rotated
from engine.backends.torch.sending import send
from engine.drafters.dflash import DFlashConfig, LayerRule
from engine.drafters.dflash_model import DFlashDrafter, DFlashModel, LayerWeights, context_projections, layer_weights
from engine.types import Draft, DrafterInfo
from engine.verification.rejection import Sampling


class TorchDFlash(DFlashModel):
    """The drafter's weights, bound to the target whose embedding and head it borrows."""

    def __init__(
        self, config: DFlashConfig, tensors: dict[str, torch.Tensor], target: LendingTarget, info: DrafterInfo
    ) -> None:
        super().__init__(config, info)
        self.target = target
        # Products need one dtype. Features times a drafter's weights leave float16's range, so beside such a target the
        # drafter computes in bfloat16.
        self.dtype = torch.bfloat16 if target.dtype == torch.float16 else target.dtype
        named = {name: tensor.to(target.device, self.dtype) for name, tensor in tensors.items()}
        self.fc = named["fc.weight"]
        self.hidden_norm = named["hidden_norm.weight"]
        self.norm = named["norm.weight"]
        self.layers = [layer_weights(named, index, torch.cat) for index in range(len(config.layers))]
        sides, norms = context_projections(named, len(config.layers))
        self.context_kv = torch.cat(sides)
        self.context_k_norm = torch.stack(norms)[:, None, None]
        self.selector = None if config.second is None else Selector(config.second, named)
        self._frequencies, self._rope_scale = _rope(config, target.device)

    def start(self, settings: Sampling | None) -> TorchDFlashDrafter:
        """Start with an empty context."""
        return TorchDFlashDrafter(self, settings)

    def warm_up(self) -> None:
        """Run every draft length once, so that kernels are chosen before anything is timed."""
        drafter = self.open()
        drafter.observe(0, (0,) * 16, self.fc.new_zeros((16, self.fc.shape[1])))
        for count in range(1, self.config.block_size):
            drafter.ask(0, 16, count)

    def rotary(self, position_ids: torch.Tensor) -> Table:
        """Return the rotary table of positions ``[1, rows]``."""
        angles = position_ids[..., None].float() * self._frequencies
        both = torch.cat((angles, angles), dim=-1)
        cos, sin = both.cos() * self._rope_scale, both.sin() * self._rope_scale
        return {"all": (cos.to(self.dtype), sin.to(self.dtype))}

    def context(self, features_NF: torch.Tensor) -> torch.Tensor:
        """Return the one vector ``[N, D]`` that all layers' context keys and values are made of."""
        return self._normed(functional.linear(features_NF.to(self.dtype), self.fc), self.hidden_norm)

    def context_rows(self, context_ND: torch.Tensor) -> torch.Tensor:
        """Return all layers' context keys, then their values, neither normed nor rotated ``[N, 2 * L * G * E]``."""
        return functional.linear(context_ND, self.context_kv)

    @torch.inference_mode()
    def project_context(self, features_NF: torch.Tensor, table: RotaryTable, start: int) -> tuple[Any, Any]:
        """Return every layer's context keys and values ``[L, G, N, E]`` for positions from ``start`` on."""
        config, rows = self.config, features_NF.shape[0]
        both = self.context_rows(self.context(features_NF))
        both = both.view(rows, 2, len(self.layers), config.kv_head_count, config.head_dim).permute(1, 2, 3, 0, 4)
        keys, values = both.unbind(0)
        keys = self._normed(keys, None) * self.context_k_norm
        cos, sin = table.rows(start, rows)["all"]
        return rotated(keys, cos[0], sin[0]), values

    @torch.inference_mode()
    def hidden_rows(
        self,
        ids_N: torch.Tensor,
        position: int,
        context: WindowRows,
        table: RotaryTable,
    ) -> torch.Tensor:
        """Run the block ``ids_N`` whose first row sits at ``position``; return normed hidden states ``[N, D]``."""
        config, rows = self.config, ids_N.shape[0]
        x_ND = self.target.family.embed(ids_N).to(self.dtype)
        if config.input_embedding_scale != 1.0:
            x_ND = x_ND * config.input_embedding_scale
        keys_LGCE, values_LGCE = context.room(rows, self._no_rows(), self._no_rows())
        shown = keys_LGCE.shape[2] - rows
        masks = {rule: _mask(rule, rows, shown, ids_N.device) for rule in set(config.layers)}
        cos, sin = (side[0] for side in table.rows(position, rows)["all"])
        for index, (layer, rule) in enumerate(zip(self.layers, config.layers, strict=True)):
            normed = self._normed(x_ND, layer.input_norm)
            attention_conv = convolution(layer.attention_conv, normed)
            if attention_conv is not None:
                normed = attention_conv(0, normed)
            heads = functional.linear(normed, layer.qkv).view(rows, -1, config.head_dim).transpose(0, 1)
            queries, keys, values = heads.split([config.head_count, config.kv_head_count, config.kv_head_count])
            keys_LGCE[index, :, shown:] = rotated(self._normed(keys, layer.k_norm), cos, sin)
            values_LGCE[index, :, shown:] = values
            queries = rotated(self._normed(queries, layer.q_norm), cos, sin)
            attended = functional.scaled_dot_product_attention(
                queries[None],
                keys_LGCE[index][None],
                values_LGCE[index][None],
                attn_mask=masks[rule],
                scale=config.head_dim**-0.5,
                enable_gqa=config.head_count != config.kv_head_count,
            )
            mixed = functional.linear(attended[0].transpose(0, 1).reshape(rows, -1), layer.out)
            x_ND = x_ND + (mixed if attention_conv is None else attention_conv(1, mixed))
            x_ND = x_ND + self._mlp(layer, self._normed(x_ND, layer.post_norm))
        return self._normed(x_ND, self.norm)

    @torch.inference_mode()
    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Return the target head's logits with the drafter's own multiplier and soft cap."""
        config = self.config
        logits = self.target.family.head(hidden_ND.to(self.target.dtype), soft_capped=False)
        if config.output_multiplier != 1.0:
            logits = logits * config.output_multiplier
        return logits if config.softcap is None else torch.tanh(logits / config.softcap) * config.softcap

    @torch.inference_mode()
    def best(self, bonus: int, hidden_ND: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the most likely id of every row, int64 ``[N]``, and the scores they were chosen by."""
        logits_NV = self.logits(hidden_ND)
        if self.selector is None:
            return logits_NV.argmax(dim=-1), logits_NV
        return self.selector.best(bonus, hidden_ND, logits_NV)

    def _mlp(self, layer: LayerWeights[torch.Tensor], normed_ND: torch.Tensor) -> torch.Tensor:
        """Return what the gated sublayer adds to ``[N, D]`` rows, convolved on both sides in DFlash 2."""
        convolve = convolution(layer.mlp_conv, normed_ND)
        if convolve is not None:
            normed_ND = convolve(0, normed_ND)
        gate, up = functional.linear(normed_ND, layer.gate_up).chunk(2, dim=-1)
        added = functional.linear(functional.silu(gate) * up, layer.down)
        return added if convolve is None else convolve(1, added)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], weight, self.config.rms_norm_eps)

    def _no_rows(self) -> torch.Tensor:
        config = self.config
        return self.fc.new_empty((len(self.layers), config.kv_head_count, 0, config.head_dim))


class TorchDFlashDrafter(DFlashDrafter):
    """The context of one sequence: append-only, capped to the newest ``context_tokens`` positions."""

    def __init__(self, model: TorchDFlash, settings: Sampling | None) -> None:
        super().__init__(settings)
        self.model = model
        self.context = window_cache(model.config.context_tokens + 1)
        self._table = RotaryTable(model.rotary, model.target.device)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Run one pass over ``[bonus, mask * count]``; row j proposes the token at position + j."""
        del wait_s
        count = min(count, self.model.config.block_size - 1)
        hidden_ND = self.hidden_rows(bonus, position, count)[1:]
        if self._settings is None or self._uniforms is None:
            return Draft(tokens=self.model.best(bonus, hidden_ND)[0], count=count)
        logits_NV, selector = self.model.logits(hidden_ND), self.model.selector
        uniforms = send(self._uniforms.take(count), logits_NV.device, torch.float64)
        if selector is not None:
            tokens, probs = selector.drawn(bonus, hidden_ND, logits_NV, self._settings.temperature, uniforms)
            return Draft(tokens=tokens, count=count, probs=probs)
        probs = sampling.shape(logits_NV, self._settings)
        return Draft(tokens=sampling.draw(probs, uniforms), count=count, probs=probs)

    def hidden_rows(self, bonus: int, position: int, count: int) -> torch.Tensor:
        """Return the normed hidden states ``[1 + count, D]`` of one pass."""
        self._flush()
        ids = send([bonus] + [self.model.config.mask_token_id] * count, self.model.target.device)
        self._forwards += 1
        return self.model.hidden_rows(ids, position, self.context, self._table)

    def measured_bytes(self) -> int:
        """Return the bytes of the context buffers with every committed row in them: no count of rows that wait."""
        self._flush()
        return self.context.measured_bytes()

    @torch.inference_mode()
    def _project(self, waiting: list[torch.Tensor]) -> None:
        keys, values = self.model.project_context(torch.cat(waiting), self._table, self.context.length)
        self.context.append(keys, values)

    def _begin_context(self, position: int) -> None:
        self.context.begin(position)

    def _rewind_context(self, length: int) -> None:
        self.context.rewind(length)


def _rope(config: DFlashConfig, device: torch.device) -> tuple[torch.Tensor, float]:
    """Return inverse frequencies ``[head_dim / 2]`` and the factor on cosines and sines, scaled rotary included."""
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    parameters = {**(config.rope_scaling or {}), "rope_theta": config.rope_theta}
    parameters.setdefault("rope_type", parameters.pop("type", "default"))
    module = Qwen3RotaryEmbedding(
        Qwen3Config(head_dim=config.head_dim, rope_parameters=parameters, max_position_embeddings=config.max_positions)
    )
    return module.inv_freq.to(device, torch.float32), float(module.attention_scaling)


def _mask(rule: LayerRule, rows: int, shown: int, device: torch.device) -> torch.Tensor | None:
    """Return which of ``shown`` context keys and ``rows`` block keys each block row sees, None for all."""
    if rule.reach is None and not rule.causal:
        return None
    seen = torch.ones(rows, shown + rows, dtype=torch.bool, device=device)
    if rule.causal:
        seen.tril_(shown)
    if rule.reach is not None:
        seen.triu_(shown - rule.reach)
        if not rule.causal:
            seen.tril_(shown + rule.reach)
    return seen
