"""Targets with published DFlash drafters as their config.json describes them, and small random folders of that layout.

The configs are those of the hub, less what neither backend reads. ``shrunk`` changes sizes alone: what is nested where,
what is left out, and how tensors are named and packed stays as published.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from engine.checkpoint import ASSETS, text_config
from tests.fakes import tiny_families, tiny_torch

VOCAB = 2048
"""That of the shipped tokenizer, which every folder gets with its chat template."""
Config = dict[str, Any]


def qwen3(hidden: int, feed: int, layers: int, tied: bool) -> Config:
    """Return the config of a dense Qwen3."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": feed,
        "max_position_embeddings": 40960,
        "max_window_layers": layers,
        "num_attention_heads": 32,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vocab_size": 151936,
    }


def qwen3_coder() -> Config:
    """Return the config of Qwen3-Coder-30B-A3B."""
    config = qwen3(2048, 5472, 48, tied=False) | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}
    return config | {
        "decoder_sparse_step": 1,
        "max_position_embeddings": 262144,
        "mlp_only_layers": [],
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_key_value_heads": 4,
        "rope_theta": 10000000,
    }


def qwen3_coder_next() -> Config:
    """Return the config of Qwen3-Coder-Next."""
    config = qwen3_coder() | DELTA | {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}
    return config | {
        "full_attention_interval": 4,
        "head_dim": 256,
        "intermediate_size": 5120,
        "moe_intermediate_size": 512,
        "num_attention_heads": 16,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.25,
        "rope_theta": 5000000,
        "shared_expert_intermediate_size": 512,
    }


DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}


def qwen3_5(hidden: int, feed: int, layers: int, experts: int = 0, tied: bool = False) -> Config:
    """Return the config of a Qwen3.5 or 3.6, dense or with experts, inside its vision model."""
    kind = "qwen3_5_moe" if experts else "qwen3_5"
    text: Config = DELTA | {
        "model_type": f"{kind}_text",
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": 248044,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * (layers // 4),
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 16,
        "num_hidden_layers": layers,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
        },
        "tie_word_embeddings": tied,
        "vocab_size": 248320,
    }
    if experts:
        text |= {"num_experts": experts, "num_experts_per_tok": 8, "moe_intermediate_size": 512}
        text |= {"shared_expert_intermediate_size": 512}
    else:
        text |= {"intermediate_size": feed, "mlp_only_layers": []}
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration" if experts else "Qwen3_5ForConditionalGeneration"],
        "model_type": kind,
        "image_token_id": 248056,
        "text_config": text,
        "tie_word_embeddings": tied,
        "video_token_id": 248057,
        "vision_config": {"model_type": kind, "depth": 27, "hidden_size": 1152, "intermediate_size": 4304}
        | {"num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": hidden, "patch_size": 16},
        "vision_start_token_id": 248053,
        "vision_end_token_id": 248054,
    }


def gpt_oss(layers: int, experts: int) -> Config:
    """Return the config of a gpt-oss, whose experts are packed in 4 bits."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "attention_bias": True,
        "eos_token_id": 200002,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "initial_context_length": 4096,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "num_local_experts": experts,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    }


LLAMA: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def gemma4(hidden: int, feed: int, layers: int, experts: int) -> Config:
    """Return the config of a Gemma 4, dense or with experts, inside its vision model."""
    text: Config = tiny_torch.GEMMA | {
        "model_type": "gemma4_text",
        "attention_bias": False,
        "bos_token_id": 2,
        "dtype": "bfloat16",
        "enable_moe_block": experts > 0,
        "eos_token_id": 1,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": hidden,
        "intermediate_size": feed,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * (layers // 6),
        "max_position_embeddings": 262144,
        "num_attention_heads": 16,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "sliding_window": 1024,
        "vocab_size": 262144,
        "vocab_size_per_layer_input": 262144,
    }
    if experts:
        text |= {"num_experts": experts, "top_k_experts": 8, "moe_intermediate_size": 704}
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "audio_config": None,
        "eos_token_id": [1, 106],
        "text_config": text,
        "tie_word_embeddings": True,
        "vision_config": {"model_type": "gemma4_vision", "head_dim": 72, "hidden_size": 1152}
        | {"intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27, "num_key_value_heads": 16},
    }


def qwen3_vl(hidden: int, feed: int, layers: int, tied: bool = False) -> Config:
    """Return the config of a dense Qwen3-VL."""
    text: Config = {
        "model_type": "qwen3_vl_text",
        "attention_bias": False,
        "bos_token_id": 151643,
        "dtype": "bfloat16",
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": feed,
        "max_position_embeddings": 262144,
        "num_attention_heads": 16,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "rope_theta": 5000000,
        "tie_word_embeddings": tied,
        "vocab_size": 151936,
    }
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": 151655,
        "text_config": text,
        "tie_word_embeddings": tied,
        "video_token_id": 151656,
        "vision_config": {"model_type": "qwen3_vl", "deepstack_visual_indexes": [0], "depth": 24, "hidden_size": 1024}
        | {"intermediate_size": 4096, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": hidden},
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
    }


TARGETS: dict[str, Config] = {
    "Qwen3-4B": qwen3(2560, 9728, 36, tied=True),
    "Qwen3-8B": qwen3(4096, 12288, 36, tied=False),
    "Qwen3-Coder-30B-A3B": qwen3_coder(),
    "Qwen3-Coder-Next": qwen3_coder_next(),
    "Qwen3.5-4B": qwen3_5(2560, 9216, 32, tied=True),
    "Qwen3.5-9B": qwen3_5(4096, 12288, 32),
    "Qwen3.5-27B": qwen3_5(5120, 17408, 64),
    "Qwen3.5-35B-A3B": qwen3_5(2048, 0, 40, experts=256),
    "Qwen3.5-122B-A10B": qwen3_5(3072, 0, 48, experts=256),
    "Qwen3.6-27B": qwen3_5(5120, 17408, 64),
    "Qwen3.6-35B-A3B": qwen3_5(2048, 0, 40, experts=256),
    "Qwen3-VL-2B": qwen3_vl(2048, 6144, 28, tied=True),
    "Qwen3-VL-8B": qwen3_vl(4096, 12288, 36),
    "Llama-3.1-8B-Instruct": LLAMA,
    "gpt-oss-20b": gpt_oss(24, 32),
    "gpt-oss-120b": gpt_oss(36, 128),
    "gemma-4-26B-A4B-it": gemma4(2816, 2112, 30, experts=128),
    "gemma-4-31B-it": gemma4(5376, 21504, 60, experts=0),
}
BLOCKS = {"Llama-3.1-8B-Instruct": 10}
"""Rows of a published drafter's block where they are not 16."""
ELSEWHERE = {
    "Kimi-K2.5": {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "num_hidden_layers": 61}},
    "GLM-5.3": {"model_type": "glm_moe_dsa", "num_hidden_layers": 78, "hidden_size": 6144},
    "Muse-Glimmer": {"model_type": "muse_glimmer", "num_hidden_layers": 48, "hidden_size": 4096},
}
"""Targets with a drafter that no backend decodes here."""
SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2,
    "num_local_experts": 4, "experts_per_token": 2, "top_k_experts": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "sliding_window": 12,
    "global_head_dim": 32, "head_dim": 16, "num_global_key_value_heads": 1, "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB, "bos_token_id": 2, "eos_token_id": 1,
}  # fmt: skip
SMALL_VISION = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "num_hidden_layers": 1, "head_dim": 16,
    "num_attention_heads": 2, "num_key_value_heads": 2, "num_position_embeddings": 16, "out_hidden_size": 32,
}  # fmt: skip


def shrunk(config: Config) -> Config:
    """Return a published config with small sizes; every key that was there is, and no other."""
    small = _small(config)
    if "text_config" in config:
        small["text_config"] = _small(config["text_config"])
        small["vision_config"] = {key: SMALL_VISION.get(key, value) for key, value in config["vision_config"].items()}
    return small


def _small(config: Config) -> Config:
    small = {key: SMALL[key] if key in SMALL and value is not None else value for key, value in config.items()}
    if "num_hidden_layers" in small:
        kinds = config.get("layer_types", [])
        small["num_hidden_layers"] = 6 if kinds[5:6] == ["full_attention"] and "sliding_attention" in kinds[:2] else 4
    if "layer_types" in small:
        small["layer_types"] = config["layer_types"][: small["num_hidden_layers"]]
    for place in ("rope_parameters", "rope_scaling"):
        rope = small.get(place)
        if isinstance(rope, dict) and "mrope_section" in rope:
            small[place] = rope | {"mrope_section": [1, 1, 0] if place == "rope_parameters" else [4, 2, 2]}
    return small


def write_pair(root: Path, name: str) -> tuple[Path, Path]:
    """Write a random target in the layout of a published one, with a drafter for it; return both folders."""
    config = shrunk(TARGETS[name])
    target = tiny_families.write_config(root / name, config)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(ASSETS / "kakeya-tiny-qwen3" / file, target)
    layers = text_config(config)["num_hidden_layers"]
    drafter = tiny_torch.write_dflash(
        root / f"{name}-DFlash",
        vocab_size=VOCAB,
        num_target_layers=layers,
        block_size=BLOCKS.get(name, 16),
        dflash_config={"block_size": BLOCKS.get(name, 16), "target_layer_ids": [0, layers - 3, layers - 2]},
    )
    return target, drafter


def write_elsewhere(root: Path, name: str) -> Path:
    """Write the config of a target that is not decoded here, with an empty weights file."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(ELSEWHERE[name]))
    (folder / "model.safetensors").write_bytes(b"")
    return folder
