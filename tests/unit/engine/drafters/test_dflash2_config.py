"""What the engine reads out of published DFlash 2 configurations."""

from __future__ import annotations

from typing import Any

import pytest

from engine.drafters.dflash import LayerRule, canonical_name, check_fits, check_tensors, info_of, parse
from engine.errors import ModelConfigError, ModelMismatchError, ModelWeightsError
from engine.types import TargetInfo

PUBLISHED: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "attention_bias": False,
    "is_causal": False,
    "dflash_config": {
        "block_size": 8,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "final_logit_softcapping": 20.0,
        "mask_token_id": 201818,
        "output_multiplier": 0.196,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [1, 13, 25, 37, 49],
    },
    "block_size": 16,
    "head_dim": 128,
    "hidden_size": 6656,
    "intermediate_size": 19968,
    "layer_types": ["sliding_attention"] * 5,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "num_target_layers": 52,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "sliding_window": 2048,
    "use_sliding_window": True,
    "vocab_size": 202048,
}


def nested(**changes: Any) -> dict[str, Any]:
    return PUBLISHED | {"dflash_config": PUBLISHED["dflash_config"] | changes}


def target(**changes: Any) -> TargetInfo:
    values: dict[str, Any] = {
        "name": "big",
        "digest": "",
        "format": "huggingface",
        "parameters": 1,
        "vocab_size": 202048,
        "hidden_size": 6656,
        "layer_count": 52,
        "max_positions": 4096,
        "sliding_window": None,
        "dtype": "bfloat16",
    }
    return TargetInfo(**(values | changes))


def test_a_published_config_gives_its_81_tensors() -> None:
    config = parse(PUBLISHED)
    shapes = config.tensor_shapes
    assert len(shapes) == 81
    assert shapes["layers.4.attention_conv.base_kernel"] == (2, 2, 6656)
    assert shapes["layers.0.mlp_conv.kernel_projection.weight"] == (1664, 6656)
    assert shapes["candidate_selector.hidden_projection.weight"] == (256, 6656)
    assert shapes["candidate_selector.predecessor_codebook"] == (202048, 256)
    assert shapes["candidate_selector.successor_codebook"] == (202048, 256)
    assert shapes["fc.weight"] == (6656, 33280)
    assert config.block_size == 8
    assert config.layers == (LayerRule(reach=2047, causal=False),) * 5
    check_fits(config, target())
    info = info_of(config, "second", "00", 7)
    assert info.format == "dflash-v2"
    assert (info.settings["selector_top_k"], info.settings["conv_group_size"]) == (16, 16)


def test_the_fields_are_read_from_dflash_config_first_and_then_from_the_top_level() -> None:
    fields = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 256, "selector_top_k": 16}
    bare = {key: value for key, value in PUBLISHED["dflash_config"].items() if key not in fields}
    moved = parse(PUBLISHED | fields | {"dflash_config": bare})
    assert moved.second == parse(PUBLISHED).second
    assert parse(nested() | {"selector_top_k": 99}).second == parse(PUBLISHED).second


@pytest.mark.parametrize(
    ("is_causal", "causal"), [(None, (True, False)), (False, (False, False)), (True, (True, True))], ids=str
)
def test_the_direction_told_holds_for_every_layer(is_causal: bool | None, causal: tuple[bool, bool]) -> None:
    changes = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "is_causal": is_causal}
    assert tuple(rule.causal for rule in parse(PUBLISHED | changes).layers) == causal


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (nested(conv_kernel_size=None), "conv_kernel_size is None"),
        (nested(conv_kernel_size=0), "conv_kernel_size is 0"),
        (nested(conv_kernel_size=9), "at most block_size = 8"),
        (nested(conv_group_size=48), "divisor of hidden_size = 6656"),
        (nested(conv_group_size=16.0), r"conv_group_size is 16\.0"),
        (nested(selector_rank=True), "selector_rank is True"),
        (nested(selector_rank="256"), "selector_rank is '256'"),
        (nested(selector_top_k=-1), "selector_top_k is -1"),
        (nested(selector_top_k=202049), "at most vocab_size = 202048"),
        (PUBLISHED | {"vocab_size": None}, "vocab_size is None"),
        (nested(sample_from_anchor=True), "samples from its anchor"),
        (PUBLISHED | {"architectures": ["DFlash3DraftModel"]}, "expected one of DFlashDraftModel, DFlash2DraftModel"),
    ],
)
def test_what_cannot_be_honoured_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        parse(config)


def test_codebooks_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(ModelMismatchError, match="vocab_size is 202048"):
        check_fits(parse(PUBLISHED), target(vocab_size=151936))


def test_codebooks_have_no_suffix_and_one_is_forgiven() -> None:
    bare = "candidate_selector.predecessor_codebook"
    assert [canonical_name(name) for name in (bare, f"{bare}.weight", f"model.{bare}")] == [bare] * 3
    assert canonical_name("candidate_selector.hidden_projection.weight").endswith("projection.weight")


@pytest.mark.parametrize("name", ["candidate_selector.successor_codebook", "layers.3.mlp_conv.base_kernel"])
def test_tensors_must_be_exactly_those_of_the_config(name: str) -> None:
    config = parse(PUBLISHED)
    shapes = dict(config.tensor_shapes)
    check_tensors(config, shapes)
    with pytest.raises(ModelWeightsError, match=rf"missing \['{name}'\]"):
        check_tensors(config, {key: shape for key, shape in shapes.items() if key != name})
    with pytest.raises(ModelWeightsError, match=rf"{name} has shape \(2, 2\)"):
        check_tensors(config, shapes | {name: (2, 2)})
    with pytest.raises(ModelWeightsError, match="unexpected"):
        check_tensors(parse(PUBLISHED | {"architectures": ["DFlashDraftModel"]}), shapes)
