"""A config as mlx-lm reads it: what transformers writes elsewhere or leaves to its defaults, said in mlx-lm's words.

mlx-lm takes its own defaults for what a config does not say, and computes some things one way only. Where its default
is another than the model's the entry is added; where it cannot compute what the config asks for that is an error,
because it would answer as another model without a word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx_lm.models.gemma3_text import Gemma3Model
from mlx_lm.models.rope_utils import YarnRoPE, initialize_rope

from engine.backends.mlx.models.yarn import yarn_periods
from engine.checkpoint import text_config
from engine.errors import ModelConfigError
from engine.structure.decoder import ORIGINAL, Structure, older_names, original_positions, positions_of, rope_type
from engine.structure.families import FULL, LINEAR, SLIDING

MODULES = {
    "gemma4_unified_text": "gemma4_text",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "qwen3_vl_text": "qwen3_vl",
}
"""Model types that mlx-lm knows by another name."""
UNSCALED = {"mixtral", "qwen3_moe"}
"""Model types whose layers mlx-lm gives positions that are not scaled, whatever the config says."""
UNWINDOWED = {"mixtral", "qwen2", "qwen3", "qwen3_moe"}
"""Model types whose windows mlx-lm does not apply."""
UNBIASED = {"gemma3_text", "gemma4_text", "gemma4_unified_text", "qwen3", "qwen3_moe", "qwen3_vl_text"}
"""Model types whose projections have no biases in mlx-lm, whatever the config says."""
OWN_ROTARY = {"gemma4_text", "gemma4_unified_text", "qwen3_5_text", "qwen3_5_moe_text"}
"""Model types whose ``rope_parameters`` mlx-lm reads itself."""
UNSAID_ROTARY = {"rope_theta": 1e4, "partial_rotary_factor": 0.25}
"""What such a model with recurrent layers means to transformers by saying nothing; mlx-lm takes another base."""
FIXED = {"qwen3_5_moe_text": {"norm_topk_prob": True}}
"""What a model type computes whatever its config says, and mlx-lm reads from it."""
SWIGLU = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}
"""The numbers of the experts of gpt-oss as mlx-lm computes them, whatever a config says."""
LISTED = {"gemma4_text", "gemma4_unified_text"}
"""Model types for which mlx-lm takes other kinds of layers than transformers where none are listed."""
SIZED = {"qwen3_moe"}
"""Model types whose heads mlx-lm does not size by itself."""
PERIODS = {"gemma3_text": ("sliding_window_pattern", SLIDING), "qwen3_next": ("full_attention_interval", LINEAR)}
PERIODS |= dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), PERIODS["qwen3_next"])
"""Model types whose kinds of layers mlx-lm knows as one number: every so many layers a full one."""


def completed(config: Mapping[str, Any], structure: Structure) -> dict[str, Any]:
    """Return the entries of a config that mlx-lm needs and the config does not hold.

    Raises:
        ModelConfigError: If mlx-lm does not compute what the config asks for.
    """
    text = text_config(config)
    _check_computed(structure, text)
    added: dict[str, Any] = {"tie_word_embeddings": structure.tied, **FIXED.get(structure.model_type, {})}
    if "num_local_experts" in text and "num_experts" not in text:
        # transformers writes the experts of every model under one name.
        added["num_experts"] = text["num_local_experts"]
    added |= _rotary(text, structure) | _layers(structure) | _global_heads(text)
    added = _unsaid(text, structure) | added
    if text is config:
        return added | {"model_type": MODULES.get(structure.model_type, structure.model_type)}
    vocabulary = {name: text[name] for name in {"vocab_size"} & set(text) - set(config)}
    return {"text_config": {**text, **added}} | vocabulary


def _unsaid(text: Mapping[str, Any], structure: Structure) -> dict[str, Any]:
    """Return what a config means by what it leaves out."""
    # A scaling has one new place; the base that is meant by saying none is the same in both.
    placed = {"rope_scaling"} if isinstance(text.get("rope_parameters"), Mapping) else set[str]()
    usual = {"max_position_embeddings": positions_of(text), **structure.family.defaults}
    found = {name: value for name, value in usual.items() if name not in placed | set(text)}
    if structure.model_type in SIZED and text.get("head_dim") is None:
        found["head_dim"] = structure.head_dim
    return found


def settle_windows(module: Any, structure: Structure) -> None:
    """Have mlx-lm's own decoding apply the windows of a Mistral model.

    Its Llama layers know windows, but its constructor refuses a model that has no full layer.
    """
    if structure.model_type == "mistral" and structure.window is not None:
        text = _language_model(module).model
        # A config that says nothing of a window has Mistral's first one.
        text.swa_idx, text.sliding_window = 0, structure.window
        for layer in text.layers:
            layer.use_sliding = True


def settle_positions(module: Any, structure: Structure) -> None:
    """Have mlx-lm's own decoding scale positions as the config says.

    The layers of a Qwen3 with experts and of a Mixtral leave that out, though publishers tell their users to add YaRN
    to a config; and mlx-lm rounds YaRN's bounds whatever ``truncate`` says, which gpt-oss sets to false.
    """
    language_model = _language_model(module)
    args = language_model.args
    scaling = getattr(args, "rope_scaling", None) or getattr(args, "rope_parameters", None)
    if not isinstance(scaling, Mapping):
        return
    if structure.model_type in UNSCALED:
        longest = getattr(args, "max_position_embeddings", None)
        scaled = initialize_rope(structure.head_dim, args.rope_theta, False, dict(scaling), longest)
        for layer in language_model.model.layers:
            layer.self_attn.rope = scaled
    if not scaling.get("truncate", True):
        base = scaling.get("rope_theta") or args.rope_theta
        for _, part in module.named_modules():
            if isinstance(part, YarnRoPE):
                part._freqs = yarn_periods(part.dims, base, scaling)


class _Gemma3(Gemma3Model):
    """Gemma 3 with embeddings times the root of their size in their own dtype, as transformers computes them."""

    def __call__(self, inputs: mx.array, cache: Any = None, input_embeddings: mx.array | None = None) -> mx.array:
        """Return the normed output ``[B, S, D]``."""
        raw = self.embed_tokens(inputs) if input_embeddings is None else input_embeddings
        root = self.args.hidden_size**0.5
        # mlx-lm multiplies by the root rounded to bfloat16.
        rest = root / mx.array(root, mx.bfloat16).astype(mx.float32).item()
        return super().__call__(inputs, cache, (raw.astype(mx.float32) * rest).astype(raw.dtype))


def settle_embedding(module: Any, structure: Structure) -> None:
    """Have mlx-lm's own decoding multiply the embeddings of a Gemma 3 as the engine and transformers do."""
    model = _language_model(module).model
    if structure.model_type == "gemma3_text" and model.embed_tokens(mx.array([0])).dtype != mx.bfloat16:
        model.__class__ = _Gemma3


def _language_model(module: Any) -> Any:
    """Return the language model inside of a wrapper, or the module that is one itself."""
    return getattr(module, "language_model", module)


def _check_computed(structure: Structure, text: Mapping[str, Any]) -> None:
    kind, expected = structure.model_type, structure.family.activation
    if structure.activation != expected and not (kind == "llama" and structure.activation == "swish"):
        raise ModelConfigError(
            f"hidden_act is {structure.activation!r}; mlx-lm computes {expected!r} for model type {kind!r}. "
            "Use --backend torch."
        )
    if kind in UNWINDOWED and SLIDING in structure.kinds:
        raise ModelConfigError(
            f"sliding_window is {structure.window} with use_sliding_window; mlx-lm attends to everything for model "
            f"type {kind!r}. Use --backend torch, or set use_sliding_window to false to decode without the window."
        )
    if kind in UNBIASED and text.get("attention_bias"):
        raise ModelConfigError(
            f"attention_bias is {text['attention_bias']!r}; mlx-lm computes none for model type {kind!r}. "
            "Use --backend torch."
        )
    if structure.soft_cap is not None and kind not in {"gemma4_text", "gemma4_unified_text"}:
        raise ModelConfigError(
            f"final_logit_softcapping is {structure.soft_cap}; mlx-lm leaves it out for model type {kind!r}. "
            "Use --backend torch."
        )
    for name, computed in SWIGLU.items():
        if kind == "gpt_oss" and text.get(name, computed) != computed:
            raise ModelConfigError(f"{name} is {text[name]!r}; mlx-lm computes {computed}. Use --backend torch.")
    rotary = text.get("rope_parameters")
    local = rotary.get(SLIDING) if isinstance(rotary, Mapping) else None
    if kind == "gemma3_text" and isinstance(local, Mapping) and rope_type(local) != "default":
        raise ModelConfigError(
            f"rope type of sliding layers is {rope_type(local)!r}; mlx-lm leaves it out for model type {kind!r}. "
            "Use --backend torch."
        )


def _rotary(text: Mapping[str, Any], structure: Structure) -> dict[str, Any]:
    """Return the rotary settings under their older names: base, scaling and share, or base and local base."""
    if structure.model_type in OWN_ROTARY:
        return _own_rotary(text, structure)
    added = older_names(text)
    scaling = added.get("rope_scaling", text.get("rope_scaling"))
    if isinstance(scaling, Mapping):
        # What stands beside the kind of scaling counts before what stands elsewhere.
        beside = {name: scaling[name] for name in UNSAID_ROTARY if scaling.get(name) is not None}
        added |= beside | {"rope_scaling": _scaling(scaling, text)}
    return added


def _own_rotary(text: Mapping[str, Any], structure: Structure) -> dict[str, Any]:
    """Return ``rope_parameters`` with what transformers takes where they say nothing: for all layers, or by kind."""
    stated = text.get("rope_parameters")
    if structure.family.hybrid:
        usual = {name: value if text.get(name) is None else text[name] for name, value in UNSAID_ROTARY.items()}
        # In transformers the older place counts where there are both.
        return {"rope_parameters": _scaling(usual | dict(text.get("rope_scaling") or stated or {}), text)}
    if not isinstance(stated, Mapping):
        return {}
    kinds = {kind: _scaling(entry, text) for kind, entry in stated.items() if isinstance(entry, Mapping)}
    return {"rope_parameters": {**stated, **kinds}}


def _scaling(entry: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """Return how positions are scaled, with what transformers takes where the config says nothing."""
    kind, original = rope_type(entry), original_positions(text, entry) or text.get("max_position_embeddings")
    if kind == "dynamic":
        # Its base changes behind the context alone, where decoding has ended; mlx-lm's module cannot be replayed.
        return {"rope_type": "default"} | {name: entry[name] for name in UNSAID_ROTARY if name in entry}
    scaled = {ORIGINAL: original} if kind in {"llama3", "yarn"} and original else {}
    return dict(entry) | scaled | (_yarn_factor(entry) if kind == "yarn" else {})


def _yarn_factor(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a given factor on cosines and sines as what mlx-lm multiplies the logarithm of the scaling by."""
    given, scaled = entry.get("attention_factor"), math.log(entry.get("factor") or 1.0)
    if given is None and not (entry.get("mscale") and entry.get("mscale_all_dim")):
        # One of the two alone counts for nothing.
        return {"mscale": 1, "mscale_all_dim": 0}
    if given is None or scaled <= 0.0:
        return {}
    return {"mscale": (given - 1.0) / (0.1 * scaled), "mscale_all_dim": 0}


def _layers(structure: Structure) -> dict[str, Any]:
    """Return the kinds of layers, as a list or as the period of full ones where mlx-lm knows layers by it.

    Raises:
        ModelConfigError: If the layers have none.
    """
    if structure.model_type in LISTED:
        return {"layer_types": list(structure.kinds)}
    if structure.model_type not in PERIODS:
        return {}
    name, other = PERIODS[structure.model_type]
    kinds = list(structure.kinds)
    period = kinds.index(FULL) + 1 if FULL in kinds else len(kinds) + 1
    regular = [FULL if (index + 1) % period == 0 else other for index in range(len(kinds))]
    if kinds != regular or FULL not in kinds:
        raise ModelConfigError(
            f"layer_types of model type {structure.model_type!r} have no full layer after every {period}; mlx-lm knows "
            "no other order. Use --backend torch."
        )
    return {name: period}


def _global_heads(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of Gemma 4's full-attention layers, which transformers writes per layer.

    mlx-lm reads them from two global keys and would otherwise assume the largest model's.
    """
    per_layer = text.get("per_layer_config")
    if not isinstance(per_layer, Mapping):
        return {}
    kinds = text.get("layer_types") or []
    full = [per_layer.get(str(index)) for index, kind in enumerate(kinds) if kind == FULL]
    entry: Mapping[str, Any] = next((item for item in full if item), {})
    added = {
        "global_head_dim": entry.get("head_dim", text.get("head_dim")),
        "num_global_key_value_heads": entry.get("num_key_value_heads", text.get("num_key_value_heads")),
    }
    return {key: value for key, value in added.items() if text.get(key) is None}
