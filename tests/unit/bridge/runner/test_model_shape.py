"""A runner reads a model's sizes from the folder's own files, and says nothing where they do not say it."""

from __future__ import annotations

import json

import pytest

from bridge.records.run import CacheShape
from bridge.runner.machine.model_shape import read_shape

CONFIG = {"num_hidden_layers": 2, "vocab_size": 100, "layer_types": ["sliding_attention", "full_attention"]}
WINDOW = {"sliding_window": 16}


def tensors(prefix="model.", layers=2, values=True, dtype="F32"):
    weights = {f"{prefix}embed_tokens.weight": ([100, 8], dtype)}
    for layer in range(layers):
        for side in ("k", "v") if values else ("k",):
            weights[f"{prefix}layers.{layer}.self_attn.{side}_proj.weight"] = ([4 + layer, 8], dtype)
    return weights


def write(folder, config, weights, name="model.safetensors"):
    (folder / "config.json").write_text(json.dumps(config))
    header = {key: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for key, (shape, dtype) in weights.items()}
    data = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    (folder / name).write_bytes(len(data).to_bytes(8, "little") + data)


def test_parameters_vocabulary_and_rows_are_counted(tmp_path):
    write(tmp_path, CONFIG | WINDOW, tensors())
    shape = read_shape(tmp_path)
    assert (shape.parameters, shape.vocabulary, shape.dtype, shape.text_only) == (800 + 64 + 80, 100, "float32", True)
    assert shape.caches == (
        CacheShape(keys=4, values=4, window=16),
        CacheShape(keys=5, values=5, window=None),
    )


@pytest.mark.parametrize(
    ("named", "stored", "expected"),
    [
        ({"dtype": "float32"}, "BF16", "float32"),
        ({"torch_dtype": "float32"}, "F16", "float32"),
        ({"dtype": "bfloat16"}, "BF16", "bfloat16"),
        ({"dtype": "bfloat16"}, "F32", "float32"),
        ({}, "BF16", "bfloat16"),
        ({"dtype": "float32"}, "U32", None),
        # The experts are packed, and what a report calls the model's dtype is how.
        ({"dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4"}}, "BF16", None),
    ],
)
def test_weights_stored_in_16_bits_are_computed_in_the_float32_that_their_config_names(
    tmp_path, named, stored, expected
):
    write(tmp_path, CONFIG | WINDOW | named, tensors(dtype=stored))
    assert read_shape(tmp_path).dtype == expected


def test_weights_in_several_files_are_one_model(tmp_path):
    weights = tensors()
    names = sorted(weights)
    write(tmp_path, CONFIG | WINDOW, {name: weights[name] for name in names[:2]}, "model-00001-of-00002.safetensors")
    write(tmp_path, CONFIG | WINDOW, {name: weights[name] for name in names[2:]}, "model-00002-of-00002.safetensors")
    assert read_shape(tmp_path).parameters == 944


def test_a_layer_without_values_keeps_its_keys_twice(tmp_path):
    write(tmp_path, CONFIG | WINDOW, tensors(values=False))
    assert [(cache.keys, cache.values) for cache in read_shape(tmp_path).caches] == [(4, 4), (5, 5)]


def test_layers_that_share_a_cache_own_none(tmp_path):
    write(tmp_path, CONFIG | WINDOW | {"num_kv_shared_layers": 1}, tensors())
    assert [cache.keys for cache in read_shape(tmp_path).caches] == [4]


def test_other_senses_of_a_model_are_left_out(tmp_path):
    weights = tensors("language_model.model.") | tensors("vision_tower.encoder.", layers=5)
    write(tmp_path, {"text_config": CONFIG | WINDOW}, weights)
    shape = read_shape(tmp_path)
    assert (shape.parameters, shape.text_only, len(shape.caches)) == (944, False, 2)


def test_codes_count_as_the_weights_they_stand_for(tmp_path):
    weights = {"model.embed_tokens.weight": ([100, 1], "U32"), "model.embed_tokens.scales": ([100, 1], "F16")}
    write(tmp_path, CONFIG | WINDOW | {"quantization": {"bits": 4, "group_size": 8}}, weights)
    shape = read_shape(tmp_path)
    assert (shape.parameters, shape.text_only, shape.dtype) == (800, False, None)


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3},
        {"layer_types": ["full_attention"]},
        {"layer_types": None},
    ],
)
def test_rows_that_cannot_be_told_are_not_guessed(tmp_path, change):
    write(tmp_path, CONFIG | WINDOW | change, tensors())
    shape = read_shape(tmp_path)
    assert shape.caches is None
    assert shape.parameters == 944


def test_without_kinds_and_window_every_layer_is_whole(tmp_path):
    write(tmp_path, {"num_hidden_layers": 2, "vocab_size": 100}, tensors())
    assert [cache.window for cache in read_shape(tmp_path).caches] == [None, None]


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"num_hidden_layers": "many", "vocab_size": 1}', "[" * 100_000])
def test_a_config_that_says_nothing_is_no_shape(tmp_path, config):
    write(tmp_path, CONFIG, tensors())
    (tmp_path / "config.json").write_text(config)
    assert read_shape(tmp_path) is None


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        b"version https://git-lfs",
        b"\x08\0\0\0\0\0\0\0[1, 2, 3",
        (1 << 40).to_bytes(8, "little"),
        b"\2\0\0\0\0\0\0\0{}",
    ],
)
def test_weights_that_are_none_are_no_shape(tmp_path, weights):
    write(tmp_path, CONFIG, tensors())
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert read_shape(tmp_path) is None


def test_a_shape_that_no_model_has_is_none(tmp_path):
    weights = tensors() | {"model.layers.0.self_attn.k_proj.weight": ([-4, 8], "F32")}
    write(tmp_path, CONFIG | WINDOW, weights)
    assert read_shape(tmp_path) is None
