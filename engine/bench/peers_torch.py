"""transformers as its users call it: ``generate`` alone, with its native DFlash, with a draft model, with lookup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import checkpoint
from engine.backends.torch.dflash.stored import read_drafter_tensors
from engine.bench.peer import Contestant, NativePeer
from engine.bench.turns import HeldDecode, Pushed
from engine.drafters import dflash
from engine.drafters.dflash import DFlashConfig
from engine.huggingface import open_causal
from engine.loading import Engine

_NATIVE_NAMES = {"fc.": "encoder.fc.", "hidden_norm.": "encoder.output_norm_enc."}
LOOKUP_TOKENS = 3


@dataclass(frozen=True)
class GeneratePeer:
    """``transformers.generate`` with the given extra arguments."""

    name: str
    engine: Engine
    module: Any
    extra: Mapping[str, Any]
    code_path: str = "transformers.generation.utils:GenerationMixin.generate"

    def start(self, prompt: tuple[int, ...], budget_tokens: int) -> HeldDecode:
        """Return a decode; a streamer is handed tokens when they reach the host."""
        clock = self.engine.backend.clock
        return Pushed(lambda put: self._generate(prompt, budget_tokens, put), clock)

    def _generate(self, prompt: tuple[int, ...], budget_tokens: int, put: Callable[[tuple[int, ...]], None]) -> None:
        ids = torch.tensor([prompt], device=self.module.device)
        stops = list(self.engine.target.info.stop_ids) or None
        self.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=budget_tokens,
            do_sample=False,
            eos_token_id=stops,
            pad_token_id=0,
            streamer=_Streamer(put),
            **self.extra,
        )


class _Streamer:
    """Hands on every arrival but the first, which is the prompt itself."""

    def __init__(self, put: Callable[[tuple[int, ...]], None]) -> None:
        self._put = put
        self._seen_prompt = False

    def put(self, value: torch.Tensor) -> None:
        """Take the ids that ``generate`` has read."""
        if self._seen_prompt:
            self._put(tuple(value.flatten().tolist()))
        self._seen_prompt = True

    def end(self) -> None:
        """Do nothing: the last token was handed on when it arrived."""


def torch_peers(engine: Engine, module: Any, drafter: Path | None, draft_model: Path | None) -> list[Contestant]:
    """Return transformers' contestants for a loaded target ``module``."""
    peers: list[Contestant] = [
        GeneratePeer("transformers generate", engine, module, {}),
        NativePeer(engine, "transformers forward loop"),
        GeneratePeer("transformers prompt lookup", engine, module, {"prompt_lookup_num_tokens": LOOKUP_TOKENS}),
    ]
    if drafter is not None:
        extra = {"assistant_model": native_drafter(drafter, module), "speculation_type": "dflash"}
        peers.append(GeneratePeer("transformers native DFlash", engine, module, extra))
    if draft_model is not None:
        extra = {"assistant_model": open_causal(draft_model, module.dtype, module.device)}
        peers.append(GeneratePeer("transformers assisted", engine, module, extra))
    return peers


def native_drafter(folder: Path, module: Any) -> Any:
    """Return transformers' own DFlash module with the tensors of a z-lab folder, for the target ``module``.

    transformers embeds draft rows through the target's own embedding module, so a drafter trained on raw rows with
    another scale would draft differently there; the output stays the target's.
    """
    from transformers import MuseGlimmerAssistantModel

    raw = checkpoint.read_config(folder)
    config = dflash.parse(raw)
    native = MuseGlimmerAssistantModel(_native_config(config, raw))
    tensors = {}
    for name, tensor in read_drafter_tensors(folder, config).items():
        prefix = next((prefix for prefix in _NATIVE_NAMES if name.startswith(prefix)), "")
        tensors[_NATIVE_NAMES.get(prefix, "") + name.removeprefix(prefix)] = tensor
    native.load_state_dict(tensors, strict=True)
    return native.to(module.device, module.dtype).eval()


def _native_config(config: DFlashConfig, raw: Mapping[str, Any]) -> Any:
    from transformers import MuseGlimmerAssistantConfig

    return MuseGlimmerAssistantConfig(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=len(config.layers),
        num_attention_heads=config.head_count,
        num_key_value_heads=config.kv_head_count,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta, **(config.rope_scaling or {})},
        max_position_embeddings=config.max_positions,
        layer_types=list(raw.get("layer_types") or ["full_attention"] * len(config.layers)),
        sliding_window=raw.get("sliding_window") or 2048,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
        target_layer_ids=list(config.target_layer_ids),
    )
