"""A decoder on MLX: mlx-lm's layers run one by one with the engine's own caches and capture.

mlx-lm owns the weights, the quantisation and the layer mathematics; which layers there are, and what each may see, is
read from the config. Running the layers from here gives three things its own ``__call__`` does not: hidden states of
chosen layers from the forward that is run anyway, caches that crop exactly past the sliding window and behind
recurrent layers, and logits for only the rows that are needed. No class is patched and no layer keeps state, so one set
of weights serves any number of sequences and threads.

Shapes: S rows, D hidden size, E values of a head, K captured layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.gemma4_text import logit_softcap

from engine.backends.caches import LayerRows
from engine.backends.evicting import EvictingRows, check_asks, check_made_again
from engine.backends.layers import by_layer
from engine.backends.mlx.caches import attention_mask, make_cache
from engine.backends.mlx.models.delta_net import new_state, run_layer
from engine.backends.recurrent import RecurrentState
from engine.backends.rows import Rows
from engine.errors import UsageError
from engine.restoration.restorers import EMBEDDED
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
        """Return empty caches of one sequence, by layer.

        Raises:
            UsageError: If the layout evicts rows of an attention whose queries are others than those computed here.
        """
        if layout.evicts:
            check_asks(self.structure, layout)
        if layout.rank is not None:
            check_made_again(self.structure, layout)
        reach = None if layout.every_row else 1
        states = {index: new_state(self.text.layers[index].linear_attn, reach) for index in self.structure.recurrent}
        return by_layer(list(zip(self.windows, self.head_dims, strict=True)), layout, states, make_cache)

    def embed(self, ids_S: mx.array) -> mx.array:
        """Return raw embedding rows ``[S, D]``, without the model's own scale."""
        return self.text.embed_tokens(ids_S)

    def forward(self, ids_S: mx.array, caches: Caches, capture: tuple[int, ...]) -> tuple[mx.array, Any]:
        """Append ``S`` rows; return the normed output ``[1, S, D]`` and the captured states ``[S, K * D]`` or None.

        The layer before the first, ``EMBEDDED``, puts out what the first is given.
        """
        masks = self._masks(caches, ids_S.shape[0])
        return self.layers(ids_S, caches, capture, lambda index, hidden: self._mask(index, hidden, caches, masks))

    def layers(
        self, ids_S: mx.array, held: tuple[Any, ...], capture: tuple[int, ...], mask: Callable[[int, mx.array], Any]
    ) -> tuple[mx.array, Any]:
        """Run every layer over ``held``, which keeps its rows or state; ``mask`` is asked with a layer and its input.

        Returns what ``forward`` does.
        """
        ids = ids_S[None]
        raw = self.text.embed_tokens(ids)
        hidden = raw if self._scale is None else raw * self._scale
        run = self._run_sharing(ids, raw, hidden, held) if hasattr(self.text, "previous_kvs") else None
        captured: list[mx.array] = [hidden] if EMBEDDED in capture else []
        for index, (layer, kind) in enumerate(zip(self.text.layers, self.structure.kinds, strict=True)):
            if kind == LINEAR:
                hidden = run_layer(layer, hidden, held[index])
            elif run is not None:
                hidden = run(index, hidden, mask(index, hidden))
            else:
                hidden = layer(hidden, mask(index, hidden), held[index])
            if index in capture:
                captured.append(hidden)
        return self.text.norm(hidden), mx.concatenate(captured, axis=-1)[0] if captured else None

    def source(self, layer: int) -> int:
        """Return the layer whose rows a layer attends to."""
        return self._sources[layer]

    def project(self, layer: int, hidden_SD: mx.array) -> Rows:
        """Return the keys and values that a layer makes of its input, neither normed nor rotated ``[S, heads * E]``."""
        block = self.text.layers[layer]
        normed, projected = block.input_layernorm(hidden_SD[None]), getattr(block.self_attn, "v_proj", None)
        keys = block.self_attn.k_proj(normed)[0]
        return keys, keys if projected is None else projected(normed)[0]

    def finish(self, layer: int, keys: mx.array, values: mx.array, positions: Sequence[int]) -> Rows:
        """Return projected keys and values as the layer's cache keeps them, ``[1, heads, S, E]``.

        Raises:
            UsageError: If the layer does not rotate its keys by a module of its own.
        """
        attention, head_dim = self.text.layers[layer].self_attn, self.head_dims[self.structure.attending.index(layer)]
        if not hasattr(attention, "rope"):
            raise UsageError(
                f"rows of model type {self.structure.model_type!r} cannot be made again from projections: its layers "
                "have no rotation of their own"
            )
        sides = [side.reshape(1, len(positions), -1, head_dim) for side in (keys, values)]
        norms = (getattr(attention, name, None) for name in ("k_norm", "v_norm"))
        made = [side if norm is None else norm(side) for side, norm in zip(sides, norms, strict=True)]
        turned, values = made[0].transpose(0, 2, 1, 3), made[1].transpose(0, 2, 1, 3)
        runs = [attention.rope(turned[:, :, begin:end], offset=positions[begin]) for begin, end in _runs(positions)]
        return mx.concatenate(runs, axis=2), values

    def head(self, hidden: mx.array, soft_capped: bool = True) -> mx.array:
        """Return logits of normed hidden states, soft-capped as the model defines unless told otherwise."""
        own = self.model.get("lm_head")
        logits = self.text.embed_tokens.as_linear(hidden) if own is None else own(hidden)
        cap = self.structure.soft_cap
        return logit_softcap(cap, logits) if soft_capped and cap is not None else logits

    def _masks(self, caches: Caches, rows: int) -> dict[int, Any]:
        """Return by layer the mask over what its next append of ``rows`` rows will return, asked ones apart."""
        own = [(index, cache) for index, cache in enumerate(caches) if not isinstance(cache, EvictingRows)]
        seen = {index: cache.visible(rows) for index, cache in own if isinstance(cache, LayerRows)}
        made = {visible: attention_mask(visible) for visible in set(seen.values())}
        return {index: made[visible] for index, visible in seen.items()}

    def _mask(self, index: int, hidden: mx.array, caches: Caches, masks: dict[int, Any]) -> Any:
        """Return a layer's mask; a layer with pages is asked with its queries first."""
        asked = caches[index] if index < len(caches) else None
        if not isinstance(asked, EvictingRows):
            return masks[self._sources[index]]
        block = self.text.layers[index]
        attention, normed = block.self_attn, block.input_layernorm(hidden)
        heads = getattr(attention, "n_heads", None) or attention.num_heads
        key_heads = getattr(attention, "n_kv_heads", None) or attention.num_key_value_heads
        queries = attention.q_proj(normed).reshape(*normed.shape[:2], heads, -1)
        norm = getattr(attention, "q_norm", None)
        queries = (queries if norm is None else norm(queries)).transpose(0, 2, 1, 3)
        turned = attention.rope(queries, offset=asked.offset)
        return attention_mask(asked.ask(turned, key_heads, attention.scale))

    def _embedding_scale(self) -> Any:
        """Return what the model multiplies embeddings by, None for nothing."""
        if not self.structure.family.scaled:
            return None
        known = getattr(self.text, "embed_scale", None)
        if known is not None:
            return known
        like = self.embed(mx.array([0]))
        return mx.array(like.shape[-1] ** 0.5, like.dtype)

    def _run_sharing(self, ids: mx.array, raw: mx.array, hidden: mx.array, caches: tuple[Any, ...]) -> Any:
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


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return where positions follow each other without a gap, as half-open ranges of indices."""
    cuts = [index for index in range(1, len(positions)) if positions[index] != positions[index - 1] + 1]
    return list(zip([0, *cuts], [*cuts, len(positions)], strict=True))


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
