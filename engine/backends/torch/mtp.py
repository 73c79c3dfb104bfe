"""The head for several tokens on torch: a layer of transformers' own class beside its target's.

Shapes: N rows, D hidden size, V vocabulary.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from engine.backends.torch import sampling
from engine.backends.torch.caches import LayerCaches
from engine.backends.torch.models.attention import packing
from engine.backends.torch.models.decoder import Weights
from engine.backends.torch.models.rotary import RotaryTable
from engine.backends.torch.sending import send
from engine.checkpoint import weight_files
from engine.drafters.mtp import LAYER, NORMS, PRODUCT, MtpDrafter, MtpModel, check_parts, stacked
from engine.errors import ModelWeightsError
from engine.huggingface import check_finite
from engine.structure.families import FULL
from engine.structure.layout import CacheLayout
from engine.structure.stored import head_name
from engine.verification.rejection import Sampling


class TorchMtp(MtpModel):
    """The head's weights, bound to the target whose embedding and output head it reads."""

    def __init__(self, folder: Path, target: Weights) -> None:
        """Read the head of ``target``'s folder.

        Raises:
            ModelWeightsError: If tensors are missing, misshapen, not used or not finite.
        """
        self.target, text = target, target.family.text
        tensors = {name: tensor.to(target.device, target.dtype) for name, tensor in _tensors(folder).items()}
        check_finite(tensors, folder)
        super().__init__(target.info, sum(int(tensor.numel()) for tensor in tensors.values()))
        config = copy.deepcopy(text.config)
        config.layer_types, config.num_hidden_layers = [FULL], 1
        with torch.device("meta"):
            layer: Any = type(text.layers[target.family.structure.attending[-1]])(config, 0)
            norms = [type(text.norm)(config.hidden_size, eps=config.rms_norm_eps) for _ in NORMS]
        expected = {LAYER + name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()}
        expected |= dict.fromkeys(NORMS, (config.hidden_size,)) | {
            PRODUCT: (config.hidden_size, 2 * config.hidden_size)
        }
        check_parts(folder, expected, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
        inner = {name.removeprefix(LAYER): tensor for name, tensor in tensors.items() if name.startswith(LAYER)}
        layer.load_state_dict(inner, assign=True)
        for norm, name in zip(norms, NORMS, strict=True):
            norm.load_state_dict({"weight": tensors[name]}, assign=True)
        self.norm, self.embedding_norm, self.hidden_norm = (norm.requires_grad_(False) for norm in norms)
        self.layer, self.product = packing(layer.eval().requires_grad_(False)), tensors[PRODUCT]
        self.head_dim = int(layer.self_attn.head_dim)

    def start(self, settings: Sampling | None) -> TorchMtpDrafter:
        """Start a sequence without rows."""
        return TorchMtpDrafter(self, settings)

    @torch.inference_mode()
    def rows(
        self, ids_N: torch.Tensor, features_ND: torch.Tensor, caches: LayerCaches, table: RotaryTable
    ) -> torch.Tensor:
        """Append a row for each id and what stands before it; return what they put out, normed ``[N, D]``."""
        count = ids_N.shape[0]
        embedded = self.target.family.text.embed_tokens(ids_N)
        joined = torch.cat([self.embedding_norm(embedded), self.hidden_norm(features_ND)], dim=-1)
        # A row stands where its token does, one behind what the target made.
        tables = table.rows(caches.length + 1, count)
        hidden = self.layer(
            functional.linear(joined, self.product)[None],
            attention_mask=caches.masks(count, ids_N.device)[0],
            past_key_values=caches,
            position_embeddings=tables[FULL],
        )
        normed: torch.Tensor = self.norm(hidden)[0]
        return normed


class TorchMtpDrafter(MtpDrafter):
    """The head's rows of one sequence."""

    def __init__(self, model: TorchMtp, settings: Sampling | None) -> None:
        super().__init__(settings)
        self.model, target = model, model.target
        self._caches = LayerCaches((None,), (model.head_dim,), CacheLayout.NATIVE)
        self._table = RotaryTable(target.family.rotary, target.device, target.info.max_positions)

    def measured_bytes(self) -> int:
        """Return the bytes of the head's cache and of what waits for it."""
        waiting = sum(int(rows.untyped_storage().nbytes()) for rows in self._waiting)
        return self._caches.measured_bytes() + waiting

    def _sent(self, ids: list[int]) -> torch.Tensor:
        return send(ids, self.model.target.device)

    def _joined(self, parts: list[Any]) -> Any:
        return None if parts[0] is None else parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.inference_mode()
    def _normed(self, features: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.model.target.family.text.norm(features)
        return normed

    def _rows(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return self.model.rows(ids, features, self._caches, self._table)

    @torch.inference_mode()
    def _proposed(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        logits, drawn = self.model.target.family.head(hidden), self._drawn_with()
        if drawn is None:
            return logits.argmax(dim=-1), None
        settings, uniforms = drawn
        probs = sampling.shape(logits, settings)
        return sampling.draw(probs, send(uniforms, logits.device, torch.float64)), probs

    def _crop(self, length: int) -> None:
        self._caches.crop(length)

    def _begin(self, tokens: torch.Tensor) -> None:
        del tokens


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the head's tensors by their names inside of it.

    Raises:
        ModelWeightsError: If a file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="pt") as stream:
                names = {name: inner for name in stream.keys() if (inner := head_name(name)) is not None}  # noqa: SIM118
                tensors |= {inner: stream.get_tensor(name) for name, inner in names.items()}
        except (OSError, SafetensorError) as error:
            raise ModelWeightsError(f"cannot read {file}: {error}; fetch the file again") from error
    return stacked(tensors, torch.stack, torch.cat)
