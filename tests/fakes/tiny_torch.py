"""Random tiny checkpoints in Hugging Face format, written with transformers' own modules: for shape and parity only.

Weights are scaled so that greedy output varies instead of repeating one token. Both backends load these folders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCAB, HIDDEN, WINDOW, MASK_ID, BLOCK = 97, 32, 12, 3, 8
ROPE = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
}
GEMMA: dict[str, Any] = {
    "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_global_key_value_heads": 1,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True,
    "use_double_wide_mlp": False,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "rope_parameters": ROPE,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
MOE = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
SHARED = {"num_kv_shared_layers": 3, "hidden_size_per_layer_input": 8, "attention_k_eq_v": False}
QWEN: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
CONFIGS = {"gemma4": GEMMA, "gemma4-moe": GEMMA | MOE, "gemma4-shared": GEMMA | SHARED, "qwen3": QWEN}


def write_target(folder: Path, kind: str, seed: int = 0, **changes: Any) -> Path:
    """Write a random fp32 target of one of ``CONFIGS``."""
    import torch
    import transformers

    values = CONFIGS[kind] | changes
    generator = torch.Generator().manual_seed(seed)
    if kind.startswith("gemma4"):
        module: Any = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**values))
    else:
        module = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**values))
    module = module.float()
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if name.endswith(("inv_freq", "embed_scale")):
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.ndim == 1:
                tensor.copy_(1.0 + 0.2 * noise)
            elif "embed" in name:
                tensor.copy_(noise * tensor.shape[-1] ** -0.5)
            else:
                tensor.copy_(noise * 2.0 * tensor.shape[-1] ** -0.5)
    module.save_pretrained(folder)
    path = folder / "config.json"
    # transformers writes these sizes per layer only; mlx-lm reads the global keys.
    added = {key: values[key] for key in ("global_head_dim", "num_global_key_value_heads") if key in values}
    path.write_text(json.dumps(json.loads(path.read_text()) | added))
    return folder


def write_wrapped(folder: Path) -> Path:
    """Write a random text target inside Gemma 4's multimodal wrapper, as the published folders have it."""
    import transformers

    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Gemma4Config(
        text_config=GEMMA, vision_config=vision | {"head_dim": 16, "num_key_value_heads": 2}, audio_config=None
    )
    transformers.Gemma4ForConditionalGeneration(config).float().save_pretrained(folder)
    return folder


def dflash_config(**changes: Any) -> dict[str, Any]:
    """Return config.json of a random drafter for the targets above."""
    config: dict[str, Any] = {
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "vocab_size": VOCAB,
        "block_size": 16,
        "dflash_config": {"block_size": BLOCK, "mask_token_id": MASK_ID, "target_layer_ids": [0, 2, 4]},
    }
    nested = config["dflash_config"] | changes.pop("dflash_config", {})
    return config | changes | {"dflash_config": nested}


def dflash_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Return random tensors under their published names."""
    import torch

    from engine.drafters.dflash import parse

    generator = torch.Generator().manual_seed(1000 + seed)
    tensors = {}
    for name, shape in parse(config).tensor_shapes.items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = 1.0 + 0.2 * noise if len(shape) == 1 else noise * 1.5 * shape[-1] ** -0.5
    return tensors


def write_dflash(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random DFlash v1 drafter in z-lab layout."""
    from safetensors.torch import save_file

    config = dflash_config(**changes)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dflash_tensors(config, seed), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder
