"""A decoder on torch: transformers' layers run one by one with the engine's own caches and capture.

transformers owns the weights and the layer mathematics; which layers there are, and what each may see, is read from the
config. Running the layers from here gives three things the model's own ``forward`` does not: hidden states of chosen
layers without hooks, caches that crop exactly past the sliding window and behind recurrent layers, and logits for only
the rows that are needed. No class or instance is patched and no layer keeps state, so one set of weights serves any
number of sequences and threads.

Shapes: S rows, D hidden size, E values of a head, K captured layers, V vocabulary.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from engine.backends.evicting import EvictingRows, check_asks, check_made_again
from engine.backends.recurrent import HeldState
from engine.backends.rows import Rows
from engine.backends.torch.caches import LayerCaches, attention_mask
from engine.backends.torch.models.attention import packing
from engine.backends.torch.models.delta_net import FixedState, State, new_state, run_layer
from engine.backends.torch.models.rotary import Table, rotated
from engine.errors import UsageError
from engine.restoration.restorers import EMBEDDED
from engine.structure.decoder import read_structure
from engine.structure.families import LINEAR
from engine.structure.layout import CacheLayout
from engine.types import TargetInfo

EAGER = "attention with sinks repeats keys and values for every query head"
"""Why a block does not attend with its queries packed by key head."""
FAST_RECURRENCE = ("fla", "ops.gated_delta_rule", "fused_recurrent_gated_delta_rule")
"""The package of flash-linear-attention, the module inside it and the kernel that transformers calls where it can."""
REFERENCE_RECURRENCE = (
    "recurrent layers run transformers' reference, row by row: flash-linear-attention is not installed, or fails"
)


class KeyValueCaches(Protocol):
    """The caches of all layers; transformers' attention modules call their ``update``."""

    @property
    def states(self) -> Mapping[int, State]:
        """The states of recurrent layers, by layer."""

    @property
    def asked(self) -> Mapping[int, EvictingRows]:
        """The layers that are asked with their queries before each append."""

    def masks(self, rows: int, device: torch.device) -> Mapping[int, torch.Tensor | None]:
        """Return by layer the mask over what its next ``update`` with ``rows`` rows will return."""


class Decoder:
    """Embedding, layers and head of a causal language model that transformers loaded.

    Attributes:
        structure: what the config says about the layers.
        windows: the sliding window of every layer that keeps rows, None on full-attention layers.
        head_dims: the size of a head in each of those layers.
    """

    def __init__(self, module: Any) -> None:
        """Read the structure of ``module``.

        Raises:
            ModelConfigError: If its layers cannot be run one by one.
        """
        self.lm_head = module.lm_head
        self.text = getattr(module.model, "language_model", module.model)
        config = self.text.config
        self.structure = read_structure(config.to_dict())
        self.kinds = self.structure.kinds
        self.windows = self.structure.windows
        self._sources = self.structure.sources
        layers = self.text.layers
        self._layers = [packing(layer) for layer in layers]
        self.head_dims = tuple(int(layers[index].self_attn.head_dim) for index in self.structure.attending)
        self.eager = config._attn_implementation == "eager"
        """Whether attention computes its own scores, over keys and values repeated for every query head."""
        self._reference = bool(self.structure.recurrent) and not _kernels_import()
        # Frequencies by kind of layer come from one module that is told the kind.
        self._by_kind = isinstance(self.text.rotary_emb.rope_type, Mapping)
        self._shares = self.structure.model_type.startswith("gemma4")

    def slow_way(self, rows: int) -> str | None:
        """Return what a block of so many rows is slower by than it must be, None for nothing."""
        if self._reference:
            return REFERENCE_RECURRENCE
        return EAGER if self.eager and rows > 1 else None

    def caches(self, layout: CacheLayout) -> LayerCaches:
        """Return empty caches of one sequence.

        Raises:
            UsageError: If the layout evicts rows of an attention whose queries are others than those computed here.
        """
        if layout.evicts:
            check_asks(self.structure, layout)
        if layout.rank is not None:
            check_made_again(self.structure, layout)
        reach = None if layout.every_row else 1
        states = {index: new_state(self.text.layers[index].linear_attn, reach) for index in self.structure.recurrent}
        return LayerCaches(self.windows, self.head_dims, layout, states)

    def fixed_states(self, like: Mapping[int, HeldState], block_rows: int) -> dict[int, FixedState]:
        """Return room at fixed addresses for the states of recurrent layers, by layer."""
        nets = {index: self.text.layers[index].linear_attn for index in like}
        return {index: FixedState(nets[index], held.state, block_rows) for index, held in like.items()}

    def embed(self, ids_S: torch.Tensor) -> torch.Tensor:
        """Return raw embedding rows ``[S, D]``, without the model's own scale."""
        return torch.nn.functional.embedding(ids_S, self.text.embed_tokens.weight)

    def rotary(self, position_ids: torch.Tensor) -> Table:
        """Return the rotary tables of positions ``[1, rows]``, by kind of layer."""
        like, compute = self.text.embed_tokens.weight, self.text.rotary_emb
        kinds = dict.fromkeys(kind for kind in self.kinds if kind != LINEAR)
        if self._by_kind:
            return {kind: compute(like, position_ids, kind) for kind in kinds}
        return dict.fromkeys(kinds, compute(like, position_ids))

    def forward(
        self, ids_S: torch.Tensor, caches: KeyValueCaches, tables: Table, capture: tuple[int, ...]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Append ``S`` rows; return the normed output ``[S, D]`` and the captured states, each ``[S, D]``.

        The layer before the first, ``EMBEDDED``, puts out what the first is given.
        """
        ids, rows = ids_S[None], ids_S.shape[0]
        hidden = self.text.embed_tokens(ids)
        extras = self._extras(ids, hidden)
        masks = self._masks(caches.masks(rows, ids.device), rows, hidden)
        captured: list[torch.Tensor] = [hidden[0]] if EMBEDDED in capture else []
        for index, (layer, kind) in enumerate(zip(self._layers, self.kinds, strict=True)):
            if kind == LINEAR:
                hidden = run_layer(layer, hidden, caches.states[index])
            else:
                hidden = layer(
                    hidden,
                    attention_mask=self._mask(index, hidden, caches, masks, tables[kind]),
                    past_key_values=caches,
                    position_embeddings=tables[kind],
                    **extras[index],
                )
            if index in capture:
                captured.append(hidden[0])
        return self.text.norm(hidden)[0], captured

    def project(self, layer: int, hidden_SD: torch.Tensor) -> Rows:
        """Return the keys and values that a layer makes of its input, neither normed nor rotated ``[S, heads * E]``."""
        block = self.text.layers[layer]
        normed, projected = block.input_layernorm(hidden_SD[None]), getattr(block.self_attn, "v_proj", None)
        keys = block.self_attn.k_proj(normed)[0]
        return keys, keys if projected is None else projected(normed)[0]

    def finish(self, layer: int, keys: torch.Tensor, values: torch.Tensor, positions: Sequence[int]) -> Rows:
        """Return projected keys and values as the layer's cache keeps them, ``[1, heads, S, E]``.

        Raises:
            UsageError: If the layer's rotation is not that of half-split pairs over the whole head.
        """
        attention, kind = self.text.layers[layer].self_attn, self.kinds[layer]
        where = torch.tensor([list(positions)], device=keys.device)
        cos, sin = self.rotary(where)[kind]
        if cos.shape[-1] != attention.head_dim:
            raise UsageError(
                f"rows of model type {self.structure.model_type!r} cannot be made again from projections: its rotation "
                f"takes {cos.shape[-1]} of {attention.head_dim} values of a head. Use --backend mlx"
            )
        sides = [side.view(1, len(positions), -1, attention.head_dim) for side in (keys, values)]
        norms = (getattr(attention, name, None) for name in ("k_norm", "v_norm"))
        made = [side if norm is None else norm(side) for side, norm in zip(sides, norms, strict=True)]
        return rotated(made[0].transpose(1, 2), cos[:, None], sin[:, None]), made[1].transpose(1, 2)

    def attend(self, layer: int, hidden_SD: torch.Tensor, caches: KeyValueCaches, tables: Table) -> torch.Tensor:
        """Append rows to a layer that keeps its own; return what its attention makes of its input, ``[S, D]``."""
        block, rows = self._layers[layer], hidden_SD.shape[0]
        normed = block.input_layernorm(hidden_SD[None])
        masks = self._masks(caches.masks(rows, hidden_SD.device), rows, normed)
        attended, _ = block.self_attn(
            hidden_states=normed,
            attention_mask=masks[layer],
            past_key_values=caches,
            position_embeddings=tables[self.kinds[layer]],
            **({"shared_kv_states": {}} if self._shares else {}),
        )
        found: torch.Tensor = attended[0]
        return found

    def _mask(
        self,
        index: int,
        hidden: torch.Tensor,
        caches: KeyValueCaches,
        masks: Mapping[int, torch.Tensor | None],
        table: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor | None:
        """Return a layer's mask; a layer with pages is asked with its queries first."""
        asked = caches.asked.get(index)
        if asked is None:
            return masks[self._sources[index]]
        block, (cos, sin) = self.text.layers[index], table
        attention = block.self_attn
        queries = attention.q_proj(block.input_layernorm(hidden)).unflatten(-1, (-1, attention.head_dim))
        norm = getattr(attention, "q_norm", None)
        queries = rotated((queries if norm is None else norm(queries)).transpose(1, 2), cos[:, None], sin[:, None])
        key_heads = queries.shape[1] // attention.num_key_value_groups
        return attention_mask(asked.ask(queries, key_heads, attention.scaling), hidden.device)

    def head(self, hidden: torch.Tensor, soft_capped: bool = True) -> torch.Tensor:
        """Return logits of normed hidden states, soft-capped as the model defines unless told otherwise."""
        logits: torch.Tensor = self.lm_head(hidden)
        cap = self.structure.soft_cap
        return torch.tanh(logits / cap) * cap if soft_capped and cap is not None else logits

    def _extras(self, ids: torch.Tensor, hidden: torch.Tensor) -> list[dict[str, Any]]:
        """Return what Gemma 4's layers are given beside: inputs of their own, and the rows that later layers share."""
        text, count = self.text, len(self.kinds)
        if not self._shares:
            return [{}] * count
        shared: dict[str, Any] = {}
        extras: list[dict[str, Any]] = [{"shared_kv_states": shared} for _ in range(count)]
        # The unified model has no inputs per layer, and its layers take none.
        if getattr(text, "hidden_size_per_layer_input", 0):
            own = text.project_per_layer_inputs(hidden, text.get_per_layer_inputs(ids))
            for index, extra in enumerate(extras):
                extra["per_layer_input"] = own[:, :, index, :]
        return extras

    def _masks(
        self, masks: Mapping[int, torch.Tensor | None], rows: int, like: torch.Tensor
    ) -> Mapping[int, torch.Tensor | None]:
        """Return masks in the form that the layers' attention reads: eager attention adds them to the scores."""
        if not self.eager:
            return masks
        made: dict[int, torch.Tensor | None] = {}
        for mask in masks.values():
            if id(mask) in made or (mask is None and rows == 1):
                continue
            seen = torch.ones((1, 1, rows, rows), dtype=torch.bool).tril() if mask is None else mask
            hidden = ~seen.to(like.device)
            made[id(mask)] = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill(
                hidden, torch.finfo(like.dtype).min
            )
        return {index: made.get(id(mask)) for index, mask in masks.items()}


def _kernels_import() -> bool:
    """Return whether transformers calls them: it looks in the package, then in the module, else takes its reference.

    Newer packages name no kernel themselves, so that they can be imported where their kernels cannot.
    """
    package, module, kernel = FAST_RECURRENCE
    try:
        named = hasattr(importlib.import_module(package), kernel)
        return named or hasattr(importlib.import_module(f"{package}.{module}"), kernel)
    except Exception:  # noqa: BLE001 - what transformers itself catches there
        return False


class Weights:
    """Loaded weights with the way to run them. ``module`` is transformers' own model, callable as usual."""

    def __init__(self, module: Any, info: TargetInfo, ahead: bool | None = None) -> None:
        self.module = module
        self.family = Decoder(module)
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
