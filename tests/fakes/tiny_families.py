"""Random tiny checkpoints of every family, flat or in the wrapper that published folders have.

Weights are scaled so that greedy output varies instead of repeating one token, and windows are shorter than prompts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCAB, WINDOW, HIDDEN = 97, 12, 32
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
MROPE = {
    "rope_type": "default",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.5,
    "mrope_section": [1, 1, 0],
    "mrope_interleaved": True,
}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
GPT_OSS_YARN = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}
"""As both published configs of gpt-oss have it."""
HYBRID = BASE | DELTA | {"num_hidden_layers": 5, "full_attention_interval": 2, "rope_parameters": MROPE}
SHARED_EXPERT = MOE | {"shared_expert_intermediate_size": 16}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": BASE
    | {"rope_parameters": LLAMA3 | {"rope_theta": 5e4, "factor": 8.0, "original_max_position_embeddings": 64}},
    "mistral": BASE | {"sliding_window": WINDOW, "rope_theta": 1e4},
    "mixtral": BASE
    | {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "intermediate_size": 16,
        "rope_theta": 1e6,
        "sliding_window": None,
    },
    "olmo2": BASE | {"rope_theta": 5e5, "num_key_value_heads": 4},
    "qwen2": BASE | {"tie_word_embeddings": True, "rope_theta": 1e4},
    "qwen3": BASE | {"rope_parameters": YARN | {"rope_theta": 1e4}},
    "qwen3_moe": BASE | MOE | {"rope_theta": 1e4},
    "gemma3_text": BASE
    | {
        "num_hidden_layers": 6,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 8,
        "tie_word_embeddings": True,
    },
    "gpt_oss": BASE
    | {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": WINDOW,
        "swiglu_limit": 7.0,
        "rope_theta": 150000,
        "rope_scaling": GPT_OSS_YARN,
    },
    "qwen3_next": BASE | DELTA | SHARED_EXPERT | {"partial_rotary_factor": 0.5, "rope_theta": 1e4},
    "qwen3_5_text": HYBRID,
    "qwen3_5_moe_text": HYBRID | SHARED_EXPERT,
}
RECURRENT = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
STACKED = ("qwen3_5_moe",)
"""Model types whose published experts lie in one tensor, where transformers writes one for each."""
CENTRED = ("gemma3", "qwen3_5", "qwen3_next")
"""Model types whose norms multiply by one more than their weight."""


def write_family(folder: Path, kind: str, seed: int = 0, **changes: Any) -> Path:
    """Write a random fp32 target of one of ``CONFIGS``."""
    return write_config(folder, CONFIGS[kind] | changes | {"model_type": kind}, seed)


def write_config(folder: Path, config: dict[str, Any], seed: int = 0) -> Path:
    """Write random weights for a config.json, which is written as it is."""
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    auto_config = AutoConfig.for_model(**config)
    wrapped = "text_config" in config
    module: Any = (AutoModelForImageTextToText if wrapped else AutoModelForCausalLM).from_config(auto_config)
    fill(module.float(), config["model_type"], seed)
    folder.mkdir(parents=True, exist_ok=True)
    if config["model_type"] == "gpt_oss":
        tensors, config = packed_experts(module.state_dict(), seed), config | {"quantization_config": MXFP4}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    elif config["model_type"].startswith(STACKED):
        tied = {"lm_head.weight"} if auto_config.get_text_config().tie_word_embeddings else set()
        tensors = {name: tensor for name, tensor in module.state_dict().items() if name not in tied}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        module.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


def fill(module: Any, kind: str, seed: int) -> None:
    """Replace every parameter of a model by random values of a sensible size."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            centred_on_one = "norm" in name and ("linear_attn" in name or not kind.startswith(CENTRED))
            if tensor.ndim == 1:
                tensor.copy_(0.2 * noise + (1.0 if centred_on_one else 0.0))
            else:
                tensor.copy_(noise * (1.0 if "embed" in name else 2.0) * tensor.shape[-1] ** -0.5)


MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}


def packed_experts(tensors: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return tensors with random experts in the 4-bit blocks that gpt-oss is published in: 32 values and one scale."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    packed = {}
    for name, tensor in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            packed[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        shape = (experts, rows, columns // 32, 16)
        packed[f"{name}_blocks"] = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        # 127 stands for a scale of 1; the 4-bit values reach 6.
        packed[f"{name}_scales"] = torch.randint(123, 126, shape[:-1], generator=generator, dtype=torch.uint8)
    return packed


def write_head(folder: Path, kind: str, *, right: bool = False, **changes: Any) -> Path:
    """Write a random target of a recurrent kind with a head for several tokens, under the published names.

    Args:
        folder: Where.
        kind: One of ``RECURRENT``; experts of ``qwen3_next`` lie one by one, as published.
        right: Whether target and head both go by the newest token alone, and the same way.
        changes: Of the config.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    write_family(folder, kind, mtp_num_hidden_layers=1, **changes)
    path, size = folder / "model.safetensors", HIDDEN
    tensors = load_file(path)
    text: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).model
    text.config.layer_types = ["full_attention"]
    layer = type(text.layers[0])(text.config, 0)
    fill(layer, kind, 7)
    generator = torch.Generator().manual_seed(8)
    head = {f"layers.0.{name}": tensor for name, tensor in layer.state_dict().items()}
    head["fc.weight"] = torch.randn((size, 2 * size), generator=generator) * size**-0.5
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        head[f"{name}.weight"] = 0.2 * torch.randn(size, generator=generator)
    if right:
        ends = ("o_proj.weight", "out_proj.weight", "down_proj.weight", "experts.down_proj")
        for name, tensor in [*tensors.items(), *head.items()]:
            if name.endswith(ends):
                tensor.zero_()
        head["fc.weight"] = torch.cat([torch.eye(size), torch.zeros(size, size)], dim=1)
        head["pre_fc_norm_embedding.weight"] = torch.zeros(size)
        head["norm.weight"] = tensors["model.norm.weight"].clone()
    if kind == "qwen3_next":
        head = dict(_one_by_one(head))
    save_file(tensors | {f"mtp.{name}": tensor.contiguous() for name, tensor in head.items()}, path, {"format": "pt"})
    return folder


def _one_by_one(head: dict[str, Any]) -> Any:
    """Yield tensors by name, those of stacked experts for each expert and side."""
    for name, tensor in head.items():
        prefix, stacked, side = name.partition(".experts.")
        if not stacked:
            yield name, tensor
        for number, expert in enumerate(tensor if stacked else ()):
            parts = expert.chunk(2) if side == "gate_up_proj" else (expert,)
            for part, label in zip(parts, ("gate", "up") if len(parts) == 2 else ("down",), strict=True):
                yield f"{prefix}.experts.{number}.{label}_proj.weight", part.clone()
