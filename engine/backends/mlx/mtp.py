"""The head for several tokens on MLX: a layer of mlx-lm's own class beside its target's.

Shapes: N rows, D hidden size, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from engine.backends.caches import FullRows
from engine.backends.mlx import sampling
from engine.backends.mlx.caches import attention_mask, make_cache
from engine.backends.mlx.models.decoder import Weights
from engine.checkpoint import weight_files
from engine.drafters.mtp import LAYER, NORMS, PRODUCT, MtpDrafter, MtpModel, check_parts, stacked
from engine.structure.layout import CacheLayout
from engine.structure.stored import head_name, stored_tensors
from engine.verification.rejection import Sampling

CENTRED = (*NORMS, "input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight")
"""What published norms multiply by is one more than these weights; mlx-lm's own norms multiply by the weight."""


class MlxMtp(MtpModel):
    """The head's weights, bound to the target whose embedding and output head it reads."""

    def __init__(self, folder: Path, target: Weights) -> None:
        """Read the head of ``target``'s folder.

        Raises:
            ModelWeightsError: If tensors are missing, misshapen or not used.
        """
        self.target, family = target, target.family
        stored = {inner: tensor for name, tensor in _stored(folder).items() if (inner := head_name(name)) is not None}
        tensors = stacked(stored, mx.stack, mx.concatenate)
        super().__init__(target.info, sum(int(tensor.size) for tensor in tensors.values()))
        arguments: Any = family.model.args
        layer: Any = type(family.text.layers[family.structure.attending[-1]])(
            arguments, arguments.full_attention_interval - 1
        )
        size = arguments.hidden_size
        expected = dict.fromkeys(NORMS, (size,)) | {PRODUCT: (size, 2 * size)}
        expected |= {LAYER + name: tuple(tensor.shape) for name, tensor in tree_flatten(layer.parameters())}
        named = _named({name: tensor.astype(target.dtype) for name, tensor in tensors.items()}, _published(folder))
        check_parts(folder, expected, {name: tuple(tensor.shape) for name, tensor in named.items()})
        layer.load_weights([(name.removeprefix(LAYER), named[name]) for name in named if name.startswith(LAYER)])
        norms = [nn.RMSNorm(size, eps=arguments.rms_norm_eps) for _ in NORMS]
        for norm, name in zip(norms, NORMS, strict=True):
            norm.load_weights([("weight", named[name])])
        self.norm, self.embedding_norm, self.hidden_norm = norms
        self.layer, self.product = layer, named[PRODUCT].T
        self.head_dim = int(getattr(layer.self_attn, "head_dim", family.structure.head_dim))
        self.tensors = named

    def start(self, settings: Sampling | None) -> MlxMtpDrafter:
        """Start a sequence without rows."""
        return MlxMtpDrafter(self, settings)

    def rows(self, ids_N: mx.array, features_ND: mx.array, cache: FullRows) -> mx.array:
        """Append a row for each id and what stands before it; return what they put out, normed ``[N, D]``."""
        embedded = self.target.family.embed(ids_N)
        joined = mx.concatenate([self.embedding_norm(embedded), self.hidden_norm(features_ND)], axis=-1)
        mask = attention_mask(cache.visible(ids_N.shape[0]))
        return self.norm(self.layer((joined @ self.product)[None], mask, cache))[0]


class MlxMtpDrafter(MtpDrafter):
    """The head's rows of one sequence."""

    def __init__(self, model: MlxMtp, settings: Sampling | None) -> None:
        super().__init__(settings)
        self.model = model
        self._cache: Any = make_cache(None, CacheLayout.NATIVE, model.head_dim)

    def measured_bytes(self) -> int:
        """Return the bytes of the head's cache and of what waits for it."""
        return int(self._cache.measured_bytes()) + sum(int(rows.nbytes) for rows in self._waiting)

    def _sent(self, ids: list[int]) -> mx.array:
        return mx.array(ids, mx.int32)

    def _joined(self, parts: list[Any]) -> Any:
        return None if parts[0] is None else parts[0] if len(parts) == 1 else mx.concatenate(parts)

    def _normed(self, features: mx.array) -> mx.array:
        return self.model.target.family.text.norm(features)

    def _rows(self, ids: mx.array, features: mx.array) -> mx.array:
        return self.model.rows(ids, features, self._cache)

    def _proposed(self, hidden: mx.array) -> tuple[mx.array, mx.array | None]:
        logits, drawn = self.model.target.family.head(hidden), self._drawn_with()
        if drawn is None:
            return mx.argmax(logits, axis=-1), None
        settings, uniforms = drawn
        probs = sampling.shape(logits, settings)
        return sampling.draw(probs, mx.array(uniforms, mx.float32)), probs

    def _crop(self, length: int) -> None:
        self._cache.crop(length)

    def _begin(self, tokens: mx.array) -> None:
        # Drafter and target stay two evaluations: one fused graph of both is far slower on Metal at long contexts.
        mx.async_eval(tokens)


def _stored(folder: Path) -> dict[str, mx.array]:
    """Return a folder's tensors, lazily; those that nobody computes with stay in their files."""
    tensors: dict[str, mx.array] = {}
    for file in weight_files(folder):
        loaded: Any = mx.load(str(file))
        tensors |= loaded
    return tensors


def _published(folder: Path) -> bool:
    """Return whether a folder stores its norms as published, by what mlx-lm goes by: the shape of convolutions."""
    shapes = [shape for name, (_, shape) in stored_tensors(folder).items() if name.endswith("conv1d.weight")]
    return any(shape[-1] != 1 for shape in shapes)


def _named(tensors: dict[str, mx.array], published: bool) -> dict[str, mx.array]:
    """Return the head's tensors under mlx-lm's names, norms as its own multiply by them."""
    named: dict[str, mx.array] = {}
    for name, tensor in tensors.items():
        prefix, _, rest = name.partition(".experts.")
        if rest == "gate_up_proj":
            gate, up = mx.split(tensor, 2, axis=1)
            named |= {f"{prefix}.switch_mlp.gate_proj.weight": gate, f"{prefix}.switch_mlp.up_proj.weight": up}
        elif rest == "down_proj":
            named[f"{prefix}.switch_mlp.down_proj.weight"] = tensor
        else:
            named[name] = tensor + 1.0 if published and name.endswith(CENTRED) else tensor
    return named
