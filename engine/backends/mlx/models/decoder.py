"""A decoder on MLX: mlx-lm's layers run one by one with the engine's own caches and capture.

mlx-lm owns the weights, the quantisation and the layer mathematics; which layers there are, and what each may see, is
read from the config. Running the layers from here gives three things its own ``__call__`` does not: hidden states of
chosen layers from the forward that is run anyway, caches that crop exactly past the sliding window and behind
recurrent layers, and logits for only the rows that are needed. No class is patched and no layer keeps state, so one set
of weights serves any number of sequences and threads.

Shapes: S rows, D hidden size, K captured layers, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.gemma4_text import logit_softcap

from engine.backends.caches import LayerRows, by_layer
from engine.backends.mlx.caches import attention_mask, make_cache
from engine.backends.mlx.models.delta_net import new_state, run_layer
from engine.backends.recurrent import RecurrentState
from engine.structure.decoder import Structure
from engine.structure.families import LINEAR
from engine.structure.layout import CacheLayout
from engine.types import TargetInfo

Caches = tuple[LayerRows | RecurrentState, ...]


class Decoder:
    """Embedding, layers and head of a causal language model that mlx-lm loaded.

    Attributes:
        structure: what the config says about the layers.
        windows: the sliding window of every layer that keeps rows, None on full-attention layers.
        head_dims: the size of a head in each of those layers.
    """

    def __init__(self, module: Any, structure: Structure) -> None:
        self.model = getattr(module, "language_model", module)
        self.text = self.model.model
        self.structure = structure
        self.windows = structure.windows
        self._sources = structure.sources
        # mlx-lm keeps the size of a head only in layers that differ in it.
        layers = [self.text.layers[index].self_attn for index in structure.attending]
        self.head_dims = tuple(int(getattr(layer, "head_dim", structure.head_dim)) for layer in layers)
        self._scale = self._embedding_scale()

    def caches(self, layout: CacheLayout) -> Caches:
        """Return empty caches of one sequence, by layer."""
        reach = None if layout.every_row else 1
        states = {index: new_state(self.text.layers[index].linear_attn, reach) for index in self.structure.recurrent}
        return by_layer(list(zip(self.windows, self.head_dims, strict=True)), layout, states, make_cache)

    def embed(self, ids_S: mx.array) -> mx.array:
        """Return raw embedding rows ``[S, D]``, without the model's own scale."""
        return self.text.embed_tokens(ids_S)

    def forward(self, ids_S: mx.array, caches: Caches, capture: tuple[int, ...]) -> tuple[mx.array, Any]:
        """Append ``S`` rows; return the normed output ``[1, S, D]`` and the captured states ``[S, K * D]`` or None."""
        ids, rows = ids_S[None], ids_S.shape[0]
        raw = self.text.embed_tokens(ids)
        hidden = raw if self._scale is None else raw * self._scale
        # Any: a layer that attends keeps rows, never a state.
        held: tuple[Any, ...] = caches
        masks = self._masks(caches, rows)
        run = self._run_sharing(ids, raw, hidden, caches) if hasattr(self.text, "previous_kvs") else None
        captured: list[mx.array] = []
        for index, (layer, kind) in enumerate(zip(self.text.layers, self.structure.kinds, strict=True)):
            if kind == LINEAR:
                hidden = run_layer(layer, hidden, held[index])
            elif run is not None:
                hidden = run(index, hidden, masks[self._sources[index]])
            else:
                hidden = layer(hidden, masks[index], held[index])
            if index in capture:
                captured.append(hidden)
        return self.text.norm(hidden), mx.concatenate(captured, axis=-1)[0] if captured else None

    def head(self, hidden: mx.array, soft_capped: bool = True) -> mx.array:
        """Return logits of normed hidden states, soft-capped as the model defines unless told otherwise."""
        own = self.model.get("lm_head")
        logits = self.text.embed_tokens.as_linear(hidden) if own is None else own(hidden)
        cap = self.structure.soft_cap
        return logit_softcap(cap, logits) if soft_capped and cap is not None else logits

    def _masks(self, caches: Caches, rows: int) -> dict[int, Any]:
        """Return by layer the mask over what its next append of ``rows`` rows will return."""
        seen = {index: cache.visible(rows) for index, cache in enumerate(caches) if isinstance(cache, LayerRows)}
        made = {visible: attention_mask(visible) for visible in set(seen.values())}
        return {index: made[visible] for index, visible in seen.items()}

    def _embedding_scale(self) -> Any:
        """Return what the model multiplies embeddings by, None for nothing."""
        if not self.structure.family.scaled:
            return None
        known = getattr(self.text, "embed_scale", None)
        if known is not None:
            return known
        # Gemma 3 was trained with the factor in bfloat16.
        like = self.embed(mx.array([0]))
        return mx.array(like.shape[-1] ** 0.5, mx.bfloat16).astype(like.dtype)

    def _run_sharing(self, ids: mx.array, raw: mx.array, hidden: mx.array, caches: Caches) -> Any:
        """Return how to run one of Gemma 4's layers: it may have an input of its own, or an earlier layer's rows."""
        text, count = self.text, len(self.text.layers)
        extra: list[Any] = [None] * count
        if text.hidden_size_per_layer_input:
            projected = text._project_per_layer_inputs(hidden, text._get_per_layer_inputs(ids, raw))
            extra = [projected[:, :, index, :] for index in range(count)]
        shared: list[tuple[Any, Any]] = [(None, None)] * count

        def run(index: int, rows: mx.array, mask: Any) -> mx.array:
            own = caches[index] if index < len(caches) else None
            keys_values, position = (None, None) if own is not None else shared[text.previous_kvs[index]]
            rows, keys_values, position = text.layers[index](
                rows, mask, own, per_layer_input=extra[index], shared_kv=keys_values, offset=position
            )
            shared[index] = (keys_values, position)
            return rows

        return run


class Weights:
    """Loaded weights with the way to run them. ``module`` is mlx-lm's own model, callable as mlx-lm would."""

    def __init__(self, module: Any, info: TargetInfo, structure: Structure) -> None:
        self.module = module
        self.family = Decoder(module, structure)
        self.dtype = self.family.embed(mx.array([0])).dtype
        self._info = info

    @property
    def info(self) -> TargetInfo:
        """Name, digest and sizes."""
        return self._info
