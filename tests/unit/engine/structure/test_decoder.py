"""A config is read as transformers reads it, and what cannot be honoured is one line that says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint import text_config
from engine.errors import ModelConfigError
from engine.structure.decoder import positions_of, read_structure
from engine.structure.families import FAMILIES, FULL, LINEAR, SLIDING
from tests.fakes.tiny_families import BASE, CONFIGS, DELTA, HYBRID, YARN

LAYERED = BASE | {"num_hidden_layers": 8}
SAID: dict[str, dict[str, Any]] = {
    "qwen2 with windows": LAYERED
    | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3},
    "qwen2 with windows of a size unsaid": LAYERED
    | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3},
    "qwen3 with experts and windows of a size unsaid": LAYERED
    | CONFIGS["qwen3_moe"]
    | {"model_type": "qwen3_moe", "use_sliding_window": True},
    "qwen2 without": LAYERED | {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 9},
    "mistral that says nothing": LAYERED | {"model_type": "mistral"},
    "mistral without a window": LAYERED | {"model_type": "mistral", "sliding_window": None},
    "gemma 3 with its default pattern": LAYERED | {"model_type": "gemma3_text", "sliding_window": 9},
    "qwen 3.5 with its default interval": LAYERED | DELTA | {"model_type": "qwen3_5_text"},
    "gemma 4 with shared rows": LAYERED | {"model_type": "gemma4_text", "sliding_window": 9, "num_kv_shared_layers": 3},
} | {kind: config | {"model_type": kind} for kind, config in CONFIGS.items()}


@pytest.mark.parametrize("name", SAID)
def test_layers_are_what_transformers_makes_of_the_config(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = SAID[name]
    auto_config = transformers.AutoConfig.for_model(**config)
    structure, normalised = read_structure(config), read_structure(auto_config.to_dict())
    assert structure == normalised
    if getattr(auto_config, "layer_types", None):
        assert list(structure.kinds) == list(auto_config.layer_types)
    elif getattr(auto_config, "sliding_window", None) is None:
        assert set(structure.kinds) == {FULL}
    else:
        assert set(structure.kinds) == {SLIDING}
        assert structure.window == auto_config.sliding_window
    assert structure.tied == auto_config.tie_word_embeddings


def test_every_family_has_a_checkpoint_in_the_tests() -> None:
    # Of these the checkpoints are those of published layouts.
    published = {"gemma4_text", "gemma4_unified_text", "qwen3_vl_text"}
    assert set(FAMILIES) - published == set(CONFIGS)


def test_a_wrapped_config_is_read_from_its_text_part() -> None:
    wrapped = {"model_type": "qwen3_5", "text_config": HYBRID | {"model_type": "qwen3_5_text"}}
    structure = read_structure(wrapped)
    assert structure.recurrent == (0, 2, 4)
    assert structure.attending == (1, 3)
    assert structure.windows == (None, None)
    assert text_config(wrapped)["num_hidden_layers"] == len(structure.kinds)


def test_yarn_stretches_the_context_that_a_config_goes_on_stating() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    stated = {"max_position_embeddings": 40960}
    assert positions_of(stated) == 40960
    assert positions_of(stated | {"rope_scaling": yarn}) == 131072
    assert positions_of(stated | {"rope_parameters": {FULL: yarn}}) == 131072
    assert positions_of({"max_position_embeddings": 262144, "rope_scaling": yarn}) == 262144
    beside = {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 32768}
    assert positions_of(stated | beside) == 131072
    assert positions_of(stated | {"rope_scaling": yarn | {"rope_type": "llama3"}}) == 40960
    assert positions_of(stated | {"rope_scaling": {"type": "yarn", "factor": 4.0}}) == 40960
    assert positions_of({"max_position_embeddings": None}) == 131072


@pytest.mark.parametrize(
    "place",
    [
        {"rope_theta": 1e6},
        {"rope_scaling": YARN | {"rope_theta": 1e6}},
        {"rope_parameters": {"rope_theta": 1e4}},  # what transformers takes where nobody says one
    ],
)
def test_a_base_that_stands_where_transformers_reads_it_may_stand_twice(place: dict[str, Any]) -> None:
    both = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rope_scaling": YARN}
    assert read_structure(BASE | {"model_type": "qwen3"} | both | place).head_dim == BASE["head_dim"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"model_type": "mamba"}, "model type 'mamba' is not supported; expected one of gemma3, gemma3_text"),
    "no layers": ({"model_type": "llama", "num_hidden_layers": None}, "num_hidden_layers is None"),
    "layers that a wrapper leaves unsaid": (
        {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}},
        "num_hidden_layers is None for model type 'llama'.*left that to a library: add it to text_config",
    ),
    "kinds too few": (
        {"model_type": "qwen3", "layer_types": [FULL]},
        "lists 1 layers; expected a list of 4",
    ),
    "kind": ({"model_type": "qwen3", "layer_types": ["chunked"] * 4}, r"layer kinds \['chunked'\]"),
    "recurrent elsewhere": (
        {"model_type": "qwen3", "layer_types": [LINEAR] * 4},
        "layer kinds .'linear_attention'",
    ),
    "kinds not heeded": ({"model_type": "llama", "layer_types": [SLIDING] * 4}, "Remove layer_types"),
    "window": ({"model_type": "gpt_oss", "sliding_window": None}, "sliding layers without a window"),
    "rope": ({"model_type": "llama", "rope_scaling": {"type": "su"}}, r"rope type \['su'\] is not supported; expected"),
    "rope by kind": (
        {"model_type": "gemma3_text", "sliding_window": 8, "rope_parameters": {FULL: {"rope_type": "longrope"}}},
        r"rope type \['longrope'\]",
    ),
    "a base that is none": (
        {"model_type": "qwen3", "rope_theta": "1e6"},
        "rope_theta is '1e6'; expected a number above 0",
    ),
    "no base": (
        {"model_type": "qwen3", "rope_parameters": {"rope_type": "default", "rope_theta": 0}},
        "rope_theta is 0; expected a number above 0",
    ),
    "no factor": ({"model_type": "qwen3", "rope_scaling": {"type": "yarn"}}, "rope type 'yarn' has no 'factor'"),
    "a factor that is none": (
        {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": -2.0}},
        "factor is -2.0; expected a number above 0",
    ),
    "a scaling that is none": (
        {"model_type": "llama", "rope_scaling": "yarn"},
        "rope_scaling is 'yarn'; expected an obj",
    ),
    "a base behind a scaling": (
        {
            "model_type": "qwen3",
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        },
        "rope_theta is 1000000.0 in rope_parameters beside a rope_scaling.*Move what rope_scaling says into rope_param",
    ),
    "part of a head": (
        {"model_type": "llama", "partial_rotary_factor": 0.5},
        "partial_rotary_factor is 0.5; model type 'llama' rotates whole heads",
    ),
    "both ways": ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "attends to later tokens"),
    "half a state": (
        HYBRID | {"model_type": "qwen3_5_text", "linear_conv_kernel_dim": None},
        "linear_conv_kernel_dim is None in a config with recurrent layers; .*Fetch config.json again",
    ),
    "heads of a state": (
        HYBRID | {"model_type": "qwen3_5_text", "linear_num_value_heads": 3},
        "linear_num_value_heads is 3; expected a multiple of 2",
    ),
    "experts": ({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 5}, "5 experts a token of 4"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_config_that_cannot_be_honoured_is_one_line(fault: str) -> None:
    changes, message = BAD[fault]
    with pytest.raises(ModelConfigError, match=message) as caught:
        read_structure(BASE | changes)
    assert "\n" not in str(caught.value)
