"""Model families on torch: transformers' modules run layer by layer with the engine's own caches and capture.

transformers owns the weights and the layer mathematics. Running the layers from here gives three things the model's own
``forward`` does not: hidden states of chosen layers without hooks, caches that crop exactly past the sliding window,
and logits for only the rows that are needed. No class or instance is patched and no layer keeps state, so one set of
weights serves any number of sequences and threads.

Shapes: S rows, D hidden size, K captured layers, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from engine.backends.torch.models.rotary import Table
from engine.errors import ModelConfigError
from engine.types import TargetInfo

FULL, SLIDING = "full_attention", "sliding_attention"
SUPPORTED = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text", "qwen3")


class KeyValueCaches(Protocol):
    """The caches of all layers; transformers' attention modules call their ``update``."""

    def mask(self, layer_idx: int, rows: int, device: torch.device) -> torch.Tensor | None:
        """Return the mask over what the next ``update`` of a layer with ``rows`` rows will return."""


class Family(Protocol):
    """How one model family embeds, runs its layers and predicts."""

    windows: tuple[int | None, ...]
    """The sliding window of every layer that owns a cache, None on full-attention layers."""
    head_dims: tuple[int, ...]
    """The size of a head in every layer that owns a cache."""

    def embed(self, ids_S: torch.Tensor) -> torch.Tensor:
        """Return raw embedding rows ``[S, D]``, without the model's own scale."""

    def rotary(self, position_ids: torch.Tensor) -> Table:
        """Return the rotary tables of positions ``[1, rows]``."""

    def forward(
        self, ids_S: torch.Tensor, caches: KeyValueCaches, tables: Table, capture: tuple[int, ...]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Append ``S`` rows; return the normed output ``[S, D]`` and the captured states, each ``[S, D]``."""

    def head(self, hidden: torch.Tensor, soft_capped: bool = True) -> torch.Tensor:
        """Return logits of normed hidden states."""


class Gemma4Family:
    """Gemma 4 text models: dense, mixture of experts, shared K/V, per-layer inputs."""

    def __init__(self, module: Any) -> None:
        self.lm_head = module.lm_head
        self.text = getattr(module.model, "language_model", module.model)
        config = self.text.config
        if config.use_bidirectional_attention == "all":
            raise ModelConfigError("the target attends to later tokens; expected a causal language model")
        self.kinds: list[str] = list(config.layer_types)
        self.first_of = {kind: self.kinds.index(kind) for kind in set(self.kinds)}
        window = int(config.sliding_window)
        self.soft_cap: float | None = config.final_logit_softcapping
        owners = config.num_hidden_layers - config.num_kv_shared_layers
        self.windows = tuple(window if kind == SLIDING else None for kind in self.kinds[:owners])
        self.head_dims = tuple(int(layer.self_attn.head_dim) for layer in self.text.layers[:owners])

    def embed(self, ids_S: torch.Tensor) -> torch.Tensor:
        """Return raw embedding rows."""
        return torch.nn.functional.embedding(ids_S, self.text.embed_tokens.weight)

    def rotary(self, position_ids: torch.Tensor) -> Table:
        """Return one table per layer kind."""
        like = self.text.embed_tokens.weight
        return {kind: self.text.rotary_emb(like, position_ids, kind) for kind in sorted(set(self.kinds))}

    def forward(
        self, ids_S: torch.Tensor, caches: KeyValueCaches, tables: Table, capture: tuple[int, ...]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Run every layer; layers beyond the last cache reuse the keys and values of an earlier one of their type."""
        text, ids = self.text, ids_S[None]
        hidden = text.embed_tokens(ids)
        extra: Any = None
        # The unified model has no per-layer inputs, and its layers take none.
        if getattr(text, "hidden_size_per_layer_input", 0):
            extra = text.project_per_layer_inputs(hidden, text.get_per_layer_inputs(ids))
        masks = {kind: caches.mask(index, ids_S.shape[0], ids.device) for kind, index in self.first_of.items()}
        shared: dict[str, Any] = {}
        captured: list[torch.Tensor] = []
        for index, (layer, kind) in enumerate(zip(text.layers, self.kinds, strict=True)):
            hidden = layer(
                hidden,
                *(() if extra is None else (extra[:, :, index, :],)),
                shared_kv_states=shared,
                position_embeddings=tables[kind],
                attention_mask=masks[kind],
                past_key_values=caches,
            )
            if index in capture:
                captured.append(hidden[0])
        return text.norm(hidden)[0], captured

    def head(self, hidden: torch.Tensor, soft_capped: bool = True) -> torch.Tensor:
        """Return logits, soft-capped as the model defines unless told otherwise."""
        logits: torch.Tensor = self.lm_head(hidden)
        if soft_capped and self.soft_cap is not None:
            return torch.tanh(logits / self.soft_cap) * self.soft_cap
        return logits


class Qwen3Family:
    """Qwen3 dense models: full attention unless the config says otherwise per layer."""

    def __init__(self, module: Any) -> None:
        self.lm_head = module.lm_head
        self.inner = module.model
        config = self.inner.config
        self.kinds: list[str] = list(config.layer_types)
        self.first_of = {kind: self.kinds.index(kind) for kind in set(self.kinds)}
        self.windows = tuple(int(config.sliding_window) if kind == SLIDING else None for kind in self.kinds)
        self.head_dims = (int(config.head_dim),) * len(self.windows)

    def embed(self, ids_S: torch.Tensor) -> torch.Tensor:
        """Return raw embedding rows."""
        rows: torch.Tensor = self.inner.embed_tokens(ids_S)
        return rows

    def rotary(self, position_ids: torch.Tensor) -> Table:
        """Return the one table that every layer uses."""
        return {FULL: self.inner.rotary_emb(self.inner.embed_tokens.weight, position_ids)}

    def forward(
        self, ids_S: torch.Tensor, caches: KeyValueCaches, tables: Table, capture: tuple[int, ...]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Run every layer."""
        rows, device = ids_S.shape[0], ids_S.device
        hidden = self.inner.embed_tokens(ids_S[None])
        masks = {kind: caches.mask(index, rows, device) for kind, index in self.first_of.items()}
        captured: list[torch.Tensor] = []
        for index, (layer, kind) in enumerate(zip(self.inner.layers, self.kinds, strict=True)):
            hidden = layer(hidden, attention_mask=masks[kind], past_key_values=caches, position_embeddings=tables[FULL])
            if index in capture:
                captured.append(hidden[0])
        return self.inner.norm(hidden)[0], captured

    def head(self, hidden: torch.Tensor, soft_capped: bool = True) -> torch.Tensor:
        """Return logits; there is no soft cap."""
        del soft_capped
        logits: torch.Tensor = self.lm_head(hidden)
        return logits


def family_of(module: Any) -> Family:
    """Return how to run a module that transformers loaded.

    Raises:
        ModelConfigError: If the engine has no layer-by-layer forward for it.
    """
    kind = module.config.model_type
    if kind in {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"}:
        return Gemma4Family(module)
    if kind == "qwen3":
        return Qwen3Family(module)
    raise ModelConfigError(f"model type {kind!r} is not supported; expected one of {', '.join(SUPPORTED)}")


class Weights:
    """Loaded weights with the way to run them. ``module`` is transformers' own model, callable as usual."""

    def __init__(self, module: Any, info: TargetInfo, ahead: bool | None = None) -> None:
        self.module = module
        self.family = family_of(module)
        weight = module.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype
        # Queueing a forward early hides the host's work behind an accelerator; a CPU would only delay each token.
        self.ahead = self.device.type != "cpu" if ahead is None else ahead
        self._info = info

    @property
    def info(self) -> TargetInfo:
        """Name, digest and sizes."""
        return self._info
