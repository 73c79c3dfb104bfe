"""A DFlash drafter as one GGUF file, every value of its header out of the drafter's config.

Keys and tensor names are those of the engines that read such files: llama.cpp's for a transformer, ``dflash.…`` for
what a drafter adds, layer ids zero-based as in the config. What no reader has a name for has one of ours: direction
within the block, multiplier, embedding scale, what YaRN's factor is made of, and the parts of DFlash 2. The tokenizer
is in the target's file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.conversion.drafter_file import DrafterFile, StoredTensor
from engine.conversion.scratch import scratch, sweep
from engine.drafters.dflash import DFlashConfig
from engine.errors import ModelWeightsError, UsageError, needs_extra

if TYPE_CHECKING:
    from gguf import GGUFWriter

ARCHITECTURE = "dflash-draft"
STORED = "stored"
TYPES = (STORED, "f32", "f16", "bf16", "q8_0")
YARN_ONLY = ("mscale", "mscale_all_dim", "truncate")
ARCHITECTURES = re.compile(r"[a-z0-9][a-z0-9._-]*")
_TOP = {
    "fc.weight": "dflash.fc.weight",
    "hidden_norm.weight": "dflash.hidden_norm.weight",
    "norm.weight": "output_norm.weight",
    "candidate_selector.hidden_projection.weight": "dflash.selector_hidden.weight",
    "candidate_selector.predecessor_codebook": "dflash.selector_predecessor.weight",
    "candidate_selector.successor_codebook": "dflash.selector_successor.weight",
}
_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "attention_conv.base_kernel": "attn_conv_base.weight",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base.weight",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}


def gguf_name(name: str) -> str:
    """Return a tensor's name in a GGUF file for its canonical one."""
    if name in _TOP:
        return _TOP[name]
    _, index, rest = name.split(".", 2)
    return f"blk.{index}.{_LAYER[rest]}"


def write_gguf(drafter: DrafterFile, path: Path, kind: str = STORED, architecture: str = ARCHITECTURE) -> list[str]:
    """Write a drafter's file.

    Args:
        drafter: What was read from its folder.
        path: The file to write; none may be there.
        kind: Type of the matrices: ``stored`` keeps their bits. Vectors and kernels are float32, which holds every
            stored value exactly.
        architecture: The name readers know it by, and the prefix of its keys.

    Returns:
        The matrices that keep their stored type because their rows are no multiple of the type's block.

    Raises:
        BackendMissingError: If the gguf package is not installed.
        ModelWeightsError: If a value lies beyond the type.
        UsageError: If the file is there, or type or architecture are none.
    """
    with needs_extra("gguf", "the gguf package"):
        import gguf
    if kind not in TYPES:
        raise UsageError(f"type {kind!r}; expected one of {', '.join(TYPES)}")
    if not ARCHITECTURES.fullmatch(architecture):
        raise UsageError(f"architecture {architecture!r}; expected small letters, digits, '.', '_' and '-'")
    if path.exists():
        raise UsageError(f"{path} exists; name a new file, or remove it first")
    encoded = {name: _encoded(name, tensor, kind) for name, tensor in sorted(drafter.tensors.items())}
    sweep(path.parent)
    with scratch(path.parent) as making:
        writer = gguf.GGUFWriter(making / path.name, architecture)
        writer.add_name(drafter.folder.name)
        _write_header(writer, drafter.config, architecture)
        for name, (data, type_name, _) in encoded.items():
            writer.add_tensor(gguf_name(name), data, raw_dtype=gguf.GGMLQuantizationType[type_name])
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
        (making / path.name).rename(path)
    return [name for name, (_, _, as_asked) in encoded.items() if not as_asked]


def _write_header(writer: GGUFWriter, config: DFlashConfig, architecture: str) -> None:
    """Add every setting of a drafter."""
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(len(config.layers))
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.head_count)
    writer.add_head_count_kv(config.kv_head_count)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_mask_token_id(config.mask_token_id)
    if config.vocab_size is not None:
        writer.add_vocab_size(config.vocab_size)
    if config.softcap is not None:
        writer.add_final_logit_softcapping(config.softcap)
    reaches = sorted({rule.reach for rule in config.layers if rule.reach is not None})
    if reaches:
        writer.add_sliding_window(reaches[0] + 1)
        writer.add_sliding_window_pattern([rule.reach is not None for rule in config.layers])
    for key, value in _scaling(config).items():
        _add(writer, f"{architecture}.rope.scaling.{key}", value)
    for key, value in _own(config).items():
        _add(writer, f"{architecture}.dflash.{key}", value)


def _own(config: DFlashConfig) -> dict[str, Any]:
    """Return what a drafter adds to a transformer, by key behind ``dflash.``."""
    ids = config.target_layer_ids
    own: dict[str, Any] = {
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(ids),
        "n_target_layers": len(ids),
        "n_target_features": len(ids) * config.hidden_size,
        "causal_pattern": [rule.causal for rule in config.layers],
        "output_multiplier": config.output_multiplier,
        "input_embedding_scale": config.input_embedding_scale,
    }
    if config.target_layer_count is not None:
        own["target_block_count"] = config.target_layer_count
    # Readers derive YaRN's factor and round its bounds by themselves.
    scaling = config.rope_scaling or {}
    own |= {f"rope_{name}": scaling[name] for name in YARN_ONLY if scaling.get(name) is not None}
    second = config.second
    if second is not None:
        names = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
        own |= {name: getattr(second, name) for name in names}
    return own


def _scaling(config: DFlashConfig) -> dict[str, Any]:
    """Return how positions are scaled, by key behind ``rope.scaling.``; nothing where they are not."""
    scaling = config.rope_scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return {}
    names = {
        "factor": "factor",
        "original_max_position_embeddings": "original_context_length",
        "attention_factor": "attn_factor",
        "beta_fast": "yarn_beta_fast",
        "beta_slow": "yarn_beta_slow",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
    }
    renamed = {key: scaling[name] for name, key in names.items() if scaling.get(name) is not None}
    floats = {key: float(value) for key, value in renamed.items() if key != "original_context_length"}
    return {"type": kind, **renamed, **floats}


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    """Add a setting with the type that its value has."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _encoded(name: str, tensor: StoredTensor, kind: str) -> tuple[np.ndarray, str, bool]:
    """Return a tensor's data, the name of its GGUF type, and whether that is the type asked for."""
    import gguf

    if tensor.bits.ndim != 2:
        return tensor.values(), "F32", True
    packing = tensor.kind if kind == STORED else kind.upper()
    as_asked = True
    if packing == "Q8_0" and tensor.bits.shape[1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q8_0][0]:
        packing, as_asked = tensor.kind, False
    if packing == tensor.kind:
        return (tensor.bits.view(np.uint8) if packing == "BF16" else tensor.bits), packing, as_asked
    values = tensor.values()
    if packing == "F16" and np.abs(values).max() > np.finfo(np.float16).max:
        raise ModelWeightsError(f"tensor {name} holds values beyond float16; use --type bf16, f32 or stored")
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[packing]), packing, as_asked
