"""Which model types are decoded, and what their configs leave unsaid.

The defaults are those of the transformers configuration classes: published configs rely on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.checkpoint import text_config
from engine.errors import ModelConfigError

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
Config = Mapping[str, Any]


def all_full(text: Config) -> list[str]:
    """Return full attention for every layer."""
    return [FULL] * text["num_hidden_layers"]


def all_sliding(text: Config) -> list[str]:
    """Return sliding layers where a window is given, which Mistral does unless it is null."""
    return [FULL if window_of(text) is None else SLIDING] * text["num_hidden_layers"]


def sliding_from_a_layer_on(text: Config) -> list[str]:
    """Return full layers up to ``max_window_layers`` and sliding ones behind, where windows are used at all."""
    full = text["num_hidden_layers"] if window_of(text) is None else int(text.get("max_window_layers", 28))
    return [FULL if index < full else SLIDING for index in range(text["num_hidden_layers"])]


def every_sixth_full(text: Config) -> list[str]:
    """Return sliding layers with a full one at the end of each group of ``sliding_window_pattern``."""
    every = int(text.get("sliding_window_pattern") or text.get("_sliding_window_pattern") or 6)
    return [SLIDING if (index + 1) % every else FULL for index in range(text["num_hidden_layers"])]


def last_full(text: Config) -> list[str]:
    """Return the layers of ``every_sixth_full``, the last of them full in any case."""
    return [*every_sixth_full(text)[:-1], FULL]


def alternating(text: Config) -> list[str]:
    """Return sliding and full layers in turns."""
    return [FULL if index % 2 else SLIDING for index in range(text["num_hidden_layers"])]


def hybrid(text: Config) -> list[str]:
    """Return recurrent layers with a full one at the end of each group of ``full_attention_interval``."""
    every = int(text.get("full_attention_interval") or 4)
    return [LINEAR if (index + 1) % every else FULL for index in range(text["num_hidden_layers"])]


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of a model type beside its config.

    Attributes:
        kinds: the kinds of its layers where the config lists none.
        listed: whether ``layer_types`` of the config is heeded.
        tied: whether the head is the embedding where the config does not say.
        activation: of the feed-forward layers, the only one that mlx-lm computes for it.
        scaled: whether embeddings are multiplied by the root of their size.
        hybrid: whether some layers are recurrent.
        partial: whether layers may rotate a share of each head.
        sinks: whether heads may attend to nothing, which torch's fused attention does not compute.
        behind: whether norms stand behind attention, on whole projections: nothing is normed before one is made.
        defaults: what a config that leaves it out means, where mlx-lm takes something else or nothing.
    """

    kinds: Callable[[Config], list[str]]
    listed: bool = True
    tied: bool = False
    activation: str = "silu"
    scaled: bool = False
    hybrid: bool = False
    partial: bool = False
    sinks: bool = False
    behind: bool = False
    defaults: Config = field(default_factory=dict)


_GEMMA3_SIZES = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096}
_GEMMA = Family(every_sixth_full, tied=True, activation="gelu_pytorch_tanh", scaled=True)
_GEMMA4_UNSAID = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_kv_shared_layers": 0,
    "final_logit_softcapping": None,
    "use_double_wide_mlp": False,
    "sliding_window": 512,
}
_GEMMA4 = replace(_GEMMA, kinds=last_full, partial=True, defaults=_GEMMA4_UNSAID)
_UNIFIED = {"hidden_size_per_layer_input": 0, "sliding_window": 1024}
_USUAL = {"rms_norm_eps": 1e-6, "rope_theta": 1e4}
_EVERY_LAYER = {"decoder_sparse_step": 1, "mlp_only_layers": []}
_GPT_OSS = {
    "num_key_value_heads": 8,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}
_MIXTRAL = {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "num_experts_per_tok": 2}
_QWEN3_MOE = {"num_key_value_heads": 4, "norm_topk_prob": False, "num_experts_per_tok": 8, "sliding_window": 4096}
_QWEN3_VL = {"rope_theta": 5e5, "num_key_value_heads": 32, "head_dim": 128}
_HYBRID = Family(hybrid, hybrid=True, partial=True, defaults={"num_key_value_heads": 4, "head_dim": 256})
_WITH_EXPERTS = {"num_key_value_heads": 2, "head_dim": 256, "shared_expert_intermediate_size": 512}
_NEXT = {"partial_rotary_factor": 0.25, "norm_topk_prob": True, "num_experts_per_tok": 10}
_WINDOWED = Family(sliding_from_a_layer_on, defaults=_USUAL | {"num_key_value_heads": 32, "sliding_window": 4096})
FAMILIES = {
    "gemma3_text": replace(_GEMMA, defaults=_GEMMA3_SIZES),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": replace(_GEMMA4, defaults=_GEMMA4_UNSAID | _UNIFIED),
    "gpt_oss": Family(alternating, sinks=True, defaults=_GPT_OSS),
    "llama": Family(all_full, listed=False, defaults=_USUAL),
    "mistral": Family(all_sliding, listed=False, defaults=_USUAL | {"num_key_value_heads": 8}),
    "mixtral": Family(all_sliding, listed=False, defaults=_MIXTRAL),
    "olmo2": Family(all_full, listed=False, behind=True, defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e4}),
    "qwen2": _WINDOWED,
    "qwen3": replace(_WINDOWED, defaults={**_WINDOWED.defaults, "head_dim": 128}),
    "qwen3_5_moe_text": replace(_HYBRID, defaults=_WITH_EXPERTS | {"num_experts_per_tok": 8}),
    "qwen3_5_text": _HYBRID,
    "qwen3_moe": Family(all_sliding, listed=False, defaults=_USUAL | _EVERY_LAYER | _QWEN3_MOE),
    "qwen3_next": replace(_HYBRID, defaults=_USUAL | _EVERY_LAYER | _WITH_EXPERTS | _NEXT),
    # Without images all three of its positions are one, so it rotates as a Qwen3.
    "qwen3_vl_text": Family(all_full, listed=False, defaults=_USUAL | _QWEN3_VL),
}
WRAPPED = {name.removesuffix("_text"): name for name in FAMILIES if name.endswith("_text")}
"""Model types that hold a language model beside others, or are one under a shorter name."""
WINDOW_ASKED_FOR = {"qwen2", "qwen3", "qwen3_moe"}
"""A window counts only with ``use_sliding_window``."""
MISTRAL_WINDOW = 4096


def model_type(config: Config) -> str:
    """Return the key of ``FAMILIES`` that a config belongs to.

    Raises:
        ModelConfigError: If there is none.
    """
    for name in (text_config(config).get("model_type"), config.get("model_type")):
        if name in FAMILIES:
            return str(name)
        if name in WRAPPED:
            return WRAPPED[str(name)]
    names = ", ".join(sorted({*FAMILIES, *WRAPPED}))
    raise ModelConfigError(f"model type {config.get('model_type')!r} is not supported; expected one of {names}")


def window_of(text: Config) -> int | None:
    """Return how many positions a sliding layer attends to, None where no window is used."""
    kind = model_type(text)
    if kind in WINDOW_ASKED_FOR and not text.get("use_sliding_window", False):
        return None
    window = text.get("sliding_window", MISTRAL_WINDOW if kind == "mistral" else None)
    return None if window is None else int(window)
