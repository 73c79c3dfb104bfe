"""Model families on MLX: mlx-lm's modules run layer by layer with the engine's own caches and capture.

mlx-lm owns the weights, the quantisation and the layer mathematics. Running the layers from here gives three things its
own ``__call__`` does not: hidden states of chosen layers from the forward that is run anyway, caches that crop exactly
past the sliding window, and logits for only the rows that are needed. No class or instance is patched, so one set of
weights serves any number of sequences and threads.

Shapes: S rows, D hidden size, K captured layers, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.gemma4_text import logit_softcap

from engine.backends.caches import LayerRows
from engine.backends.mlx.caches import next_mask
from engine.errors import ModelConfigError
from engine.types import TargetInfo


class Family(Protocol):
    """How one model family embeds, runs its layers and predicts."""

    windows: tuple[int | None, ...]
    """The sliding window of every layer that owns a cache, None on full-attention layers."""
    head_dims: tuple[int, ...]
    """The size of a head in every layer that owns a cache."""

    def embed(self, ids_S: mx.array) -> mx.array:
        """Return raw embedding rows ``[S, D]``, without the model's own scale."""

    def forward(self, ids_S: mx.array, caches: list[LayerRows], capture: tuple[int, ...]) -> tuple[mx.array, Any]:
        """Append ``S`` rows; return the normed output ``[1, S, D]`` and the captured states ``[S, K * D]`` or None."""

    def head(self, hidden: mx.array, soft_capped: bool = True) -> mx.array:
        """Return logits of normed hidden states."""


class Gemma4Family:
    """Gemma 4 text models: dense, mixture of experts, shared K/V, per-layer inputs."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.text = model.model
        args = model.args
        owners = args.num_hidden_layers - args.num_kv_shared_layers
        self.kinds: list[str] = list(args.layer_types)
        window = int(args.sliding_window)
        self.windows = tuple(window if kind == "sliding_attention" else None for kind in self.kinds[:owners])
        self.head_dims = tuple(int(layer.self_attn.head_dim) for layer in self.text.layers[:owners])
        self.first_of = {kind: self.kinds.index(kind) for kind in set(self.kinds)}

    def embed(self, ids_S: mx.array) -> mx.array:
        """Return raw embedding rows."""
        return self.text.embed_tokens(ids_S)

    def forward(self, ids_S: mx.array, caches: list[LayerRows], capture: tuple[int, ...]) -> tuple[mx.array, Any]:
        """Run every layer; layers beyond the last cache reuse the keys and values of an earlier one of their type."""
        text = self.text
        ids, rows = ids_S[None], ids_S.shape[0]
        raw = text.embed_tokens(ids)
        hidden = raw * text.embed_scale
        extra: list[Any] = [None] * len(text.layers)
        if text.hidden_size_per_layer_input:
            projected = text._project_per_layer_inputs(hidden, text._get_per_layer_inputs(ids, raw))
            extra = [projected[:, :, index, :] for index in range(len(text.layers))]
        masks = {kind: next_mask(caches[index], rows) for kind, index in self.first_of.items()}
        shared: list[tuple[Any, Any]] = [(None, None)] * len(text.layers)
        captured: list[mx.array] = []
        for index, layer in enumerate(text.layers):
            own = caches[index] if index < len(caches) else None
            keys_values, position = (None, None) if own is not None else shared[text.previous_kvs[index]]
            hidden, keys_values, position = layer(
                hidden,
                masks[self.kinds[index]],
                own,
                per_layer_input=extra[index],
                shared_kv=keys_values,
                offset=position,
            )
            shared[index] = (keys_values, position)
            if index in capture:
                captured.append(hidden)
        return text.norm(hidden), mx.concatenate(captured, axis=-1)[0] if captured else None

    def head(self, hidden: mx.array, soft_capped: bool = True) -> mx.array:
        """Return logits, soft-capped as the model defines unless told otherwise."""
        model = self.model
        logits = self.text.embed_tokens.as_linear(hidden) if model.tie_word_embeddings else model.lm_head(hidden)
        cap = model.final_logit_softcapping
        return logit_softcap(cap, logits) if soft_capped and cap is not None else logits


class Qwen3Family:
    """Qwen3 dense models: full attention everywhere."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.windows: tuple[int | None, ...] = (None,) * len(model.model.layers)
        self.head_dims = (int(model.args.head_dim),) * len(self.windows)

    def embed(self, ids_S: mx.array) -> mx.array:
        """Return raw embedding rows."""
        return self.model.model.embed_tokens(ids_S)

    def forward(self, ids_S: mx.array, caches: list[LayerRows], capture: tuple[int, ...]) -> tuple[mx.array, Any]:
        """Run every layer under one causal mask."""
        inner = self.model.model
        hidden = inner.embed_tokens(ids_S[None])
        mask = next_mask(caches[0], ids_S.shape[0])
        captured: list[mx.array] = []
        for index, (layer, cache) in enumerate(zip(inner.layers, caches, strict=True)):
            hidden = layer(hidden, mask, cache)
            if index in capture:
                captured.append(hidden)
        return inner.norm(hidden), mx.concatenate(captured, axis=-1)[0] if captured else None

    def head(self, hidden: mx.array, soft_capped: bool = True) -> mx.array:
        """Return logits; there is no soft cap."""
        del soft_capped
        model = self.model
        return model.model.embed_tokens.as_linear(hidden) if model.args.tie_word_embeddings else model.lm_head(hidden)


def family_of(model: Any) -> Family:
    """Return how to run a module that mlx-lm loaded.

    Raises:
        ModelConfigError: If the engine has no layer-by-layer forward for it.
    """
    if model.model_type in {"gemma4", "gemma4_unified"}:
        model = model.language_model
    if model.model_type == "gemma4_text":
        return Gemma4Family(model)
    if model.model_type == "qwen3":
        return Qwen3Family(model)
    raise ModelConfigError(f"model type {model.model_type!r} is not supported; expected gemma4, gemma4_text or qwen3")


class Weights:
    """Loaded weights with the way to run them. ``module`` is mlx-lm's own model, callable as mlx-lm would."""

    def __init__(self, module: Any, info: TargetInfo) -> None:
        self.module = module
        self.family = family_of(module)
        self.dtype = self.family.embed(mx.array([0])).dtype
        self._info = info

    @property
    def info(self) -> TargetInfo:
        """Name, digest and sizes."""
        return self._info
