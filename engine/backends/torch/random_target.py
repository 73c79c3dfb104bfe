"""Targets of published shapes with random weights: they cost what the real ones cost and say nothing sensible.

For measuring forwards where a checkpoint cannot be had. Everything about such a target is labelled random.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from engine.backends.torch.target import TorchTarget
from engine.errors import UsageError
from engine.types import TargetInfo

_ROPE = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
}
_PATTERN = ["sliding_attention"] * 5 + ["full_attention"]
_SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "vocab_size_per_layer_input": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 64,
    "layer_types": _PATTERN,
    "num_experts": 8,
    "top_k_experts": 2,
    "max_position_embeddings": 4096,
}
SHAPES: dict[str, dict[str, Any]] = {
    "gemma4-26b-a4b": _SMALL
    | {
        "vocab_size": 262144,
        "vocab_size_per_layer_input": 262144,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "moe_intermediate_size": 704,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 2,
        "sliding_window": 1024,
        "layer_types": _PATTERN * 5,
        "num_experts": 128,
        "top_k_experts": 8,
        "max_position_embeddings": 262144,
    },
    "gemma4-moe-small": _SMALL,
}
"""Mixture-of-experts Gemma 4 shapes; the small one exists to try the path on any machine."""
_COMMON = {
    "attention_k_eq_v": True,
    "enable_moe_block": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "use_double_wide_mlp": False,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
    "rope_parameters": _ROPE,
}


def random_target(shape: str, device: torch.device, dtype: torch.dtype, seed: int = 0) -> TorchTarget:
    """Build a target on its device without a copy elsewhere.

    Raises:
        UsageError: If there is no such shape.
    """
    from transformers import AutoModelForCausalLM, Gemma4TextConfig

    if shape not in SHAPES:
        raise UsageError(f"no shapes {shape!r}; known: {', '.join(sorted(SHAPES))}")
    values = SHAPES[shape] | _COMMON
    torch.manual_seed(seed)
    with torch.device(device):
        module: Any = AutoModelForCausalLM.from_config(
            Gemma4TextConfig(**values), dtype=dtype, attn_implementation="sdpa"
        )
    module.eval().requires_grad_(False)
    described = json.dumps({"shape": values, "seed": seed, "dtype": str(dtype)}, sort_keys=True)
    info = TargetInfo(
        name=f"random-{shape}",
        digest=hashlib.sha256(described.encode()).hexdigest(),
        format="random weights, published shapes",
        parameters=sum(int(parameter.numel()) for parameter in module.parameters()),
        vocab_size=values["vocab_size"],
        hidden_size=values["hidden_size"],
        layer_count=values["num_hidden_layers"],
        max_positions=values["max_position_embeddings"],
        sliding_window=values["sliding_window"],
        dtype=str(dtype).removeprefix("torch."),
    )
    return TorchTarget(module, info)
