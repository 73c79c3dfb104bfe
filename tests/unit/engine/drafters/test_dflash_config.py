"""What the engine reads out of published DFlash configurations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.drafters.dflash import DFlashConfig, LayerRule, canonical_name, check_fits, check_tensors, parse
from engine.errors import ModelConfigError, ModelMismatchError, ModelWeightsError
from engine.types import TargetInfo

QWEN3_4B_B16 = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "block_size": 16,
    "num_target_layers": 36,
    "vocab_size": 151936,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}
MUSE = {
    "architectures": ["MuseGlimmerAssistantModel"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "block_size": 8,
    "mask_token_id": 5,
    "target_layer_ids": [1, 3],
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}


def target(**changes: Any) -> TargetInfo:
    values: dict[str, Any] = {
        "name": "qwen",
        "digest": "",
        "format": "huggingface",
        "parameters": 1,
        "vocab_size": 151936,
        "hidden_size": 2560,
        "layer_count": 36,
        "max_positions": 4096,
        "sliding_window": None,
        "dtype": "bfloat16",
    }
    return TargetInfo(**(values | changes))


def changed(config: dict[str, Any], **changes: Any) -> DFlashConfig:
    return parse(config | changes)


def test_a_published_config_gives_its_58_tensors() -> None:
    config = parse(QWEN3_4B_B16)
    assert len(config.tensor_shapes) == 58
    assert config.tensor_shapes["fc.weight"] == (2560, 5 * 2560)
    assert config.tensor_shapes["layers.4.self_attn.q_proj.weight"] == (4096, 2560)
    assert config.layers == (LayerRule(reach=None, causal=False),) * 5
    check_fits(config, target())


def test_the_nested_block_size_wins() -> None:
    nested = QWEN3_4B_B16["dflash_config"] | {"block_size": 8}
    assert changed(QWEN3_4B_B16, dflash_config=nested).block_size == 8


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, LayerRule(reach=2047, causal=True)),
        ({"is_causal": False}, LayerRule(reach=2047, causal=False)),
        ({"dflash_config": {"causal": False}}, LayerRule(reach=2047, causal=False)),
        ({"dflash_config": {"causal": True}, "is_causal": False}, LayerRule(reach=2047, causal=True)),
        ({"dflash_config": {"is_causal": False}}, LayerRule(reach=2047, causal=False)),
        ({"dflash_config": {"use_swa": True, "swa_window_size": 512}}, LayerRule(reach=511, causal=True)),
        ({"use_sliding_window": False}, LayerRule(reach=None, causal=False)),
        ({"sliding_window": None}, LayerRule(reach=None, causal=False)),
    ],
)
def test_sliding_layers_are_causal_in_the_block_unless_the_config_says_otherwise(
    changes: dict[str, Any], rule: LayerRule
) -> None:
    nested = QWEN3_4B_B16["dflash_config"] | changes.get("dflash_config", {})
    config = QWEN3_4B_B16 | {"layer_types": ["sliding_attention"] * 4 + ["full_attention"], "sliding_window": 2048}
    assert changed(config, **(changes | {"dflash_config": nested})).layers[0] == rule


@pytest.mark.parametrize("changes", [{"is_causal": True}, {"dflash_config": {"is_causal": True}}])
def test_full_layers_are_causal_where_the_config_says_so(changes: dict[str, Any]) -> None:
    nested = QWEN3_4B_B16["dflash_config"] | changes.get("dflash_config", {})
    assert changed(QWEN3_4B_B16, **(changes | {"dflash_config": nested})).layers[0].causal


def test_the_class_in_transformers_reads_top_level_fields_and_is_bidirectional_with_an_inclusive_window() -> None:
    config = parse(MUSE)
    assert config.layers == (LayerRule(reach=32, causal=False), LayerRule(reach=None, causal=False))
    assert (config.block_size, config.mask_token_id, config.rope_theta) == (8, 5, 500000.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["EagleDraftModel"]}, "Use a DFlash checkpoint"),
        ({"transformer_layer_config": {"rope_theta": 1e6}}, "speculators format"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"dflash_config": QWEN3_4B_B16["dflash_config"] | {"use_swa": True}}, "swa_window_size is None"),
        ({"rope_theta": None}, "rope_theta"),
        ({"dflash_config": {"mask_token_id": 1}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [3, 1]}}, "ascending"),
        ({"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id"),
        ({"layer_types": ["full_attention"]}, "expected num_hidden_layers = 5"),
        ({"layer_types": ["linear_attention"] * 5}, "linear_attention"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"rope_is_neox_style": False}, "rotate-half"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"dflash_config": [1]}, "expected an object"),
        ({"dflash_config": {"mask_token_id": 1.5}}, "mask_token_id is 1.5; expected a whole number"),
        ({"dflash_config": {"mask_token_id": True}}, "mask_token_id is True; expected a whole number"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": "13"}}, "expected a list of whole numbers"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 3.5]}}, "expected a list of whole numbers"),
        ({"context_tokens": 0}, "context_tokens is 0; expected at least 1"),
        ({"context_tokens": -3}, "context_tokens is -3; expected at least 1"),
        ({"final_logit_softcapping": "30"}, "final_logit_softcapping is '30'; expected a number above 0"),
        ({"final_logit_softcapping": -30.0}, "final_logit_softcapping is -30.0; expected a number above 0"),
        ({"output_multiplier": math.nan}, "output_multiplier is nan; expected a number above 0"),
        ({"input_embedding_scale": 0}, "input_embedding_scale is 0; expected a number above 0"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps is 0.0; expected a number above 0"),
        ({"rope_theta": -5.0}, "rope_theta is -5.0; expected a number above 0"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'; expected an object"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope type is 'dynamic'; expected one of"),
        ({"rope_scaling": {"type": "yarn"}}, "rope type 'yarn' has no 'factor'"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor is 0; expected a number above 0"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "rope type 'llama3' has no 'low_freq_factor'"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": "8k"}},
            "original_max_position_embeddings is '8k'; expected a number above 0",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        changed(QWEN3_4B_B16, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 2048}, "hidden_size is 2560"),
        ({"layer_count": 28}, "num_target_layers is 36"),
        ({"vocab_size": 1000}, "vocab_size is 151936"),
    ],
)
def test_another_targets_drafter_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelMismatchError, match=message):
        check_fits(parse(QWEN3_4B_B16), target(**changes))


def test_a_cap_of_nothing_is_none() -> None:
    assert changed(QWEN3_4B_B16, final_logit_softcapping=0.0).softcap is None


def test_names_of_other_publishers_are_resolved() -> None:
    assert canonical_name("model.layers.0.mlp.up_proj.weight") == "layers.0.mlp.up_proj.weight"
    assert canonical_name("encoder.fc.weight") == "fc.weight"
    assert canonical_name("model.encoder.output_norm_enc.weight") == "hidden_norm.weight"


def test_tensors_must_be_exactly_those_of_the_config() -> None:
    config = parse(MUSE)
    shapes = dict(config.tensor_shapes)
    check_tensors(config, shapes)
    with pytest.raises(ModelWeightsError, match=r"unexpected .*lm_head"):
        check_tensors(config, shapes | {"lm_head.weight": (1, 1)})
    with pytest.raises(ModelWeightsError, match=r"missing .*norm.weight"):
        check_tensors(config, {name: shape for name, shape in shapes.items() if name != "norm.weight"})
    with pytest.raises(ModelWeightsError, match=r"norm.weight has shape \(3,\)"):
        check_tensors(config, shapes | {"norm.weight": (3,)})
