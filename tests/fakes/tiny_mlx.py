"""Random tiny checkpoints in real folder formats, written with mlx-lm's modules: for shape and parity, never quality.

Weights are scaled so that greedy output varies instead of repeating one token.
"""

from __future__ import annotations

import json
from pathlib import Path

VOCAB = 97
HIDDEN = 32
LAYERS = 6
WINDOW = 12
KINDS = ["sliding_attention", "sliding_attention", "full_attention"] * 2
ROPE = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}
GEMMA = {
    "model_type": "gemma4_text",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
    "sliding_window": WINDOW,
    "max_position_embeddings": 512,
    "attention_k_eq_v": True,
    "final_logit_softcapping": 30.0,
    "use_double_wide_mlp": False,
    "layer_types": KINDS,
    "rope_parameters": ROPE,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
}
CONFIGS = {
    "gemma4": GEMMA,
    "gemma4-moe": GEMMA | {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 32},
    "gemma4-shared": GEMMA
    | {
        "num_kv_shared_layers": 3,
        "hidden_size_per_layer_input": 8,
        "attention_k_eq_v": False,
        "use_double_wide_mlp": True,
    },
    "qwen3": {
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": 4,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        "eos_token_id": 1,
    },
}


def write_target(folder: Path, kind: str, seed: int = 0, bits: int | None = None, wrapped: bool = False) -> Path:
    """Write a random target of one of ``CONFIGS``; ``bits`` quantises it as mlx-lm does, ``wrapped`` nests it."""
    import importlib

    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten

    config = dict(CONFIGS[kind])
    if bits:
        # Quantisation groups need rows that are multiples of 32.
        config |= {"intermediate_size": 128, "hidden_size": 64}
    arch = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = arch.Model(arch.ModelArgs.from_dict(config))
    key = mx.random.key(seed)
    weights = {}
    for name, value in tree_flatten(model.parameters()):
        key, use = mx.random.split(key)
        noise = mx.random.normal(value.shape, key=use)
        if value.ndim == 1:
            fresh = 1.0 + 0.2 * noise
        elif "embed" in name:
            fresh = noise * value.shape[-1] ** -0.5
        else:
            fresh = noise * 2.0 * value.shape[-1] ** -0.5
        weights[name] = fresh.astype(mx.float32)
    model.load_weights(list(weights.items()))
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    weights = dict(tree_flatten(model.parameters()))
    if wrapped:
        # mlx-lm writes language_model.model.*, transformers model.language_model.*, and both read the other's.
        weights = {
            f"language_model.{name}" if bits else f"model.language_model.{name.removeprefix('model.')}": value
            for name, value in weights.items()
        }
        quantization = config.pop("quantization", None)
        config = {"model_type": "gemma4", "text_config": config, "vocab_size": VOCAB, "eos_token_id": [1]}
        config |= {"quantization": quantization} if quantization else {}
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_dflash(folder: Path, seed: int = 0, layers: int = 2, **changes: object) -> Path:
    """Write a random DFlash v1 drafter in z-lab layout for the targets above."""
    import mlx.core as mx

    from engine.drafters.dflash import parse

    config: dict[str, object] = {
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "hidden_size": HIDDEN,
        "num_hidden_layers": layers,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "vocab_size": VOCAB,
        "block_size": 16,
        "dflash_config": {"block_size": 8, "mask_token_id": 3, "target_layer_ids": [0, 2]},
    }
    config |= changes
    key = mx.random.key(1000 + seed)
    weights = {}
    for name, shape in parse(config).tensor_shapes.items():
        key, use = mx.random.split(key)
        noise = mx.random.normal(shape, key=use)
        weights[name] = 1.0 + 0.2 * noise if len(shape) == 1 else noise * shape[-1] ** -0.5
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config))
    return folder
