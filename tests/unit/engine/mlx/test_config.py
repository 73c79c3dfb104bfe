"""What mlx-lm would leave out of a config without a word is an error, and what it would read into it is settled."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="the MLX backend is not installed")

from mlx_lm.models import mistral3

from engine.backends.mlx.models.config import completed, settle_windows
from engine.errors import ModelConfigError
from engine.structure.decoder import read_structure
from engine.structure.families import FULL, SLIDING
from tests.fakes.tiny_families import CONFIGS, WINDOW, YARN

LEFT_OUT: dict[str, tuple[str, dict[str, Any], str]] = {
    "another bound": ("gpt_oss", {"swiglu_limit": 5.0}, r"swiglu_limit is 5\.0; mlx-lm computes 7\.0"),
    "another gain": ("gpt_oss", {"swiglu_alpha": 1.0}, r"swiglu_alpha is 1\.0; mlx-lm computes 1\.702"),
    "another activation": ("qwen3", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; mlx-lm computes 'silu'"),
    "scaled sliding layers": (
        "gemma3_text",
        {"rope_parameters": {FULL: {"rope_theta": 1e6}, SLIDING: {"rope_type": "linear", "factor": 2.0}}},
        "rope type of sliding layers is 'linear'; mlx-lm leaves it out",
    ),
    "biases": ("qwen3", {"attention_bias": True}, "attention_bias is True; mlx-lm computes none for model type"),
    "a window": ("mixtral", {"sliding_window": 8}, "sliding_window is 8"),
    "a window of a size unsaid": (
        "qwen3",
        {"use_sliding_window": True, "max_window_layers": 2},
        "sliding_window is 4096",
    ),
    "a soft cap": (
        "llama",
        {"final_logit_softcapping": 30.0},
        r"final_logit_softcapping is 30\.0; mlx-lm leaves it out",
    ),
}


def config_of(kind: str, **changes: Any) -> dict[str, Any]:
    return CONFIGS[kind] | {"model_type": kind} | changes


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_mlx_lm_leaves_out_is_an_error_that_names_the_other_backend(name: str) -> None:
    kind, changes, message = LEFT_OUT[name]
    config = config_of(kind, **changes)
    with pytest.raises(ModelConfigError, match=message + ".*Use --backend torch"):
        completed(config, read_structure(config))


def test_one_of_yarn_s_two_scales_alone_counts_for_nothing() -> None:
    alone = config_of("llama", rope_parameters=None, rope_theta=1e4, rope_scaling=YARN | {"mscale": 1.5})
    both = alone | {"rope_scaling": YARN | {"mscale": 1.5, "mscale_all_dim": 0.5}}
    scales = [completed(config, read_structure(config))["rope_scaling"] for config in (alone, both)]
    assert [(scale["mscale"], scale["mscale_all_dim"]) for scale in scales] == [(1, 0), (1.5, 0.5)]


def test_a_base_that_the_newer_place_leaves_unsaid_is_the_one_of_transformers() -> None:
    unsaid = {name: value for name, value in config_of("qwen2").items() if name != "rope_theta"}
    config = unsaid | {"rope_parameters": {"rope_type": "default"}}
    assert completed(config, read_structure(config))["rope_theta"] == 1e4


def test_experts_of_qwen_3_5_are_normed_whatever_a_config_says() -> None:
    config = config_of("qwen3_5_moe_text", norm_topk_prob=False)
    assert completed(config, read_structure(config))["norm_topk_prob"] is True


def test_rotary_settings_of_qwen_3_5_under_their_older_names_are_read() -> None:
    older = {"rope_parameters": None, "rope_theta": 1e7, "partial_rotary_factor": 0.5, "rope_scaling": YARN}
    config = config_of("qwen3_5_text", **older)
    settings = completed(config, read_structure(config))["rope_parameters"]
    assert settings.items() >= (YARN | {"rope_theta": 1e7, "partial_rotary_factor": 0.5}).items()


def test_the_window_of_a_mistral_inside_of_a_wrapper_is_set_on_its_language_model() -> None:
    wrapped = {"model_type": "mistral3", "text_config": config_of("mistral")}
    module = mistral3.Model(mistral3.ModelArgs("mistral3", config_of("mistral")))
    settle_windows(module, read_structure(wrapped))
    text = module.language_model.model
    assert (text.swa_idx, text.sliding_window) == (0, WINDOW)
    assert all(layer.use_sliding for layer in text.layers)
