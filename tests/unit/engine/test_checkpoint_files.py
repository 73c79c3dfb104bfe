"""What a model folder says of itself is read strictly, before a library sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import number_format, read_config, read_target_config, stop_ids, stop_sources
from engine.errors import ModelConfigError
from engine.tokenizer import Tokenizer


@pytest.mark.parametrize("value", ["six", -1, 0, 1.5, True, [4]])
@pytest.mark.parametrize("nested", [False, True])
def test_a_size_that_is_no_count_is_named(tmp_path: Path, value: Any, nested: bool) -> None:
    sizes = {"num_hidden_layers": value}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": sizes} if nested else sizes))
    with pytest.raises(ModelConfigError, match=r"num_hidden_layers .*expected a whole number of at least 1"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["final_logit_softcapping", "rms_norm_eps"])
@pytest.mark.parametrize("text", ["0", "-1.5", "true", "NaN", "Infinity", '"30"'])
def test_what_is_divided_by_is_above_nothing(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"{name}": {text}}}')
    with pytest.raises(ModelConfigError, match=rf"{name} .*expected a number above 0"):
        read_target_config(tmp_path)


@pytest.mark.parametrize("shared", [-1, 6, 7, "3", True])
def test_no_more_layers_share_keys_than_there_are(tmp_path: Path, shared: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 6, "num_kv_shared_layers": shared}))
    with pytest.raises(ModelConfigError, match=r"num_kv_shared_layers .*expected a whole number below"):
        read_target_config(tmp_path)


@pytest.mark.parametrize("window", [0, -4, "64"])
def test_a_window_that_is_none_is_named(tmp_path: Path, window: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"sliding_window": window}))
    with pytest.raises(ModelConfigError, match=r"sliding_window .*expected a whole number of at least 1"):
        read_config(tmp_path)


def test_a_config_nested_without_end_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ModelConfigError, match="expected a JSON object"):
        read_config(tmp_path)


def test_a_size_may_be_left_open(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"head_dim": null, "hidden_size": 64}')
    assert read_config(tmp_path) == {"head_dim": None, "hidden_size": 64}


@pytest.mark.parametrize("text", ["{", "[1]", '{"eos_token_id": "x"}', '{"eos_token_id": [1, true]}'])
def test_stop_ids_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(ModelConfigError):
        stop_ids(tmp_path, {})


def test_stop_ids_are_those_of_every_file_each_with_its_sources(tmp_path: Path) -> None:
    words = {"added_tokens": [{"id": 7, "content": "<|im_end|>"}], "model": {"vocab": {"</s>": 2}}}
    wrapper = {"eos_token_id": [3], "text_config": {"eos_token_id": 4}}
    assert stop_ids(tmp_path, {"eos_token_id": 3}) == (3,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 3]}')
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|im_end|>"}}')
    assert stop_sources(tmp_path, wrapper) == {
        1: ("generation_config.json",),
        3: ("generation_config.json", "config.json"),
        4: ("text_config in config.json",),
        7: ("tokenizer_config.json",),
    }


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config.json": {"eos_token": "</s>", "added_tokens_decoder": {"2": {"content": "</s>"}}}},
        {"tokenizer_config.json": {"eos_token": "</s>"}, "tokenizer.json": {"model": {"vocab": {"</s>": 2}}}},
        {"special_tokens_map.json": {"eos_token": "</s>"}, "tokenizer.json": {"model": {"vocab": {"</s>": 2}}}},
    ],
)
def test_an_end_that_the_tokenizer_alone_names_ends_an_answer(tmp_path: Path, files: dict[str, Any]) -> None:
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    assert stop_ids(tmp_path, {}) == (2,)
    assert stop_ids(tmp_path, {"text_config": {"eos_token_id": 0}}) == (0, 2)


def test_a_broken_tokenizer_is_an_error_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelConfigError, match=r"tokenizer\.json.*fetch the file again"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("inside", [{}, {"dtype": None}])
def test_a_dtype_that_a_wrapper_alone_names_is_its_language_model_s(name: str, inside: dict[str, Any]) -> None:
    assert number_format({name: "float32", "text_config": inside}) == "float32"
    assert number_format({name: "float32", "text_config": {"torch_dtype": "bfloat16"}}) == "bfloat16"
    assert number_format({"text_config": inside}) == "unknown"
