"""Recipes: model shapes by family and size, and the curriculum every target is trained with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.training import tokenizer as tk

FAMILIES = ("gemma4", "qwen3")
SIZES = ("small", "60m")


@dataclass(frozen=True)
class Mix:
    """Shares of row kinds in a batch; they add up to 1."""

    copy: float
    needle: float
    code: float
    structured: float


@dataclass(frozen=True)
class Stage:
    """One stage of the curriculum: until `until` (share of all steps), `rows` rows of `length` tokens a step.

    `listed` headers of structured documents repeat their members as a tuple; without, they name them once.
    """

    until: float
    rows: int
    length: int
    mix: Mix
    listed: bool = True


@dataclass(frozen=True)
class TargetRecipe:
    """Everything that decides a target's training besides the seed."""

    family: str
    size: str
    steps: int
    warmup_copy_steps: int
    stages: tuple[Stage, ...]
    matrix_lr: float = 0.02
    vector_lr: float = 3e-3
    warmup_steps: int = 40
    constant_until: float = 0.55
    final_lr_share: float = 0.04
    position_jumps: bool = False


COPY_STAGE = Stage(0.0, 16, 128, Mix(1.0, 0.0, 0.0, 0.0))
GEMMA_STAGES = (
    Stage(0.32, 16, 128, Mix(0.42, 0.36, 0.10, 0.12), listed=False),
    Stage(0.60, 8, 256, Mix(0.08, 0.34, 0.36, 0.22), listed=False),
    Stage(0.6064, 4, 512, Mix(0.02, 0.22, 0.41, 0.35), listed=False),
    Stage(0.94, 4, 512, Mix(0.02, 0.16, 0.20, 0.62)),
    Stage(1.00, 2, 1024, Mix(0.00, 0.25, 0.20, 0.55)),
)
QWEN_STAGES = (
    Stage(0.32, 16, 128, Mix(0.42, 0.36, 0.10, 0.12)),
    Stage(0.52, 8, 256, Mix(0.08, 0.32, 0.25, 0.35)),
    Stage(0.82, 4, 512, Mix(0.02, 0.16, 0.20, 0.62)),
    Stage(0.93, 2, 1024, Mix(0.00, 0.22, 0.18, 0.60)),
    Stage(1.00, 1, 2048, Mix(0.00, 0.40, 0.10, 0.50)),
)


def target_recipe(family: str, size: str, steps: int) -> TargetRecipe:
    """Return the recipe of a target of `family` and `size` over `steps` main steps.

    Raises:
        KeyError: When the family or the size is unknown.
    """
    stages = {"gemma4": GEMMA_STAGES, "qwen3": QWEN_STAGES}[family]
    if size == "small":
        return TargetRecipe(family, size, steps, min(180, steps), stages, position_jumps=family == "qwen3")
    if size == "60m":
        return TargetRecipe(
            family, size, steps, min(400, steps), stages, 0.01, 1e-3, 200, position_jumps=family == "qwen3"
        )
    raise KeyError(size)


def target_config(family: str, size: str, vocab_size: int) -> dict[str, Any]:
    """Return the transformers configuration values of a target."""
    small = size == "small"
    common = {
        "vocab_size": vocab_size,
        "max_position_embeddings": 16384 if family == "gemma4" else 4096,
        "pad_token_id": tk.PAD_ID,
        "eos_token_id": tk.EOS_ID,
        "bos_token_id": tk.BOS_ID,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
        "hidden_size": 192 if small else 640,
        "intermediate_size": 512 if small else 2048,
        "num_hidden_layers": 6 if small else 12,
        "num_attention_heads": 4 if small else 8,
        "num_key_value_heads": 2 if small else 4,
    }
    if family == "gemma4":
        return common | {
            "head_dim": 32 if small else 64,
            "global_head_dim": 64 if small else 128,
            "num_global_key_value_heads": 1 if small else 2,
            "attention_k_eq_v": True,
            "sliding_window": 64 if small else 256,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * (2 if small else 4),
            "final_logit_softcapping": 30.0,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": vocab_size,
            "use_double_wide_mlp": False,
            "enable_moe_block": False,
        }
    return common | {
        "head_dim": 48 if small else 80,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "use_sliding_window": False,
        "attention_bias": False,
    }
