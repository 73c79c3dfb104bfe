"""A model's folder that is empty, half of a download, or pointers of git-lfs is named by what it lacks."""

from __future__ import annotations

import json

import pytest

from bridge.runner.maintenance.model_checks import what_is_missing

INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no config.json"),
        ({"config.json": "{}"}, "has no weights"),
        ({"config.json": "{}", "model.safetensors": "w"}, None),
        ({"config.json": "{}", "weights.npz": "w"}, None),
        (
            {"config.json": "{}", "model.safetensors.index.json": INDEX, "model-1.safetensors": "w"},
            "lacks 1 of 2 files of weights, e.g. model-2.safetensors",
        ),
        ({"config.json": "{}", "model.safetensors.index.json": "[1]"}, "is no index of weights"),
        ({"config.json": "{}", "model.safetensors": "w", "x.incomplete": ""}, "is half of a download"),
        ({"config.json": "{}", "model.safetensors": POINTER}, "is a pointer of git-lfs"),
    ],
)
def test_a_folder_is_whole_or_says_what_it_lacks(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    problem = what_is_missing(tmp_path)
    assert problem is None if message is None else message in str(problem)
