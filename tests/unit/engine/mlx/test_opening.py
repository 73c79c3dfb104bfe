"""A model of float32 that is stored in 16 bits is computed in float32 on MLX, by the engine and by its peers alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("mlx_lm", reason="the MLX backend is not installed")

import mlx.core as mx
from mlx.utils import tree_flatten

from engine.backends.mlx.backend import MlxBackend
from engine.backends.mlx.models.opening import open_module
from engine.bench.peers_mlx import mlx_peers
from engine.loading import open_engine
from tests.fakes import tiny_mlx


def write_stored(folder: Path, dtype: mx.Dtype, named: str | None) -> Path:
    """Write a target whose weights are stored in ``dtype`` and whose config names another, or none."""
    tiny_mlx.write_target(folder, "qwen3")
    file = str(folder / "model.safetensors")
    mx.save_safetensors(file, {name: value.astype(dtype) for name, value in mx.load(file).items()})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | ({} if named is None else {"dtype": named})))
    return folder


@pytest.mark.parametrize(
    ("stored", "named", "expected"),
    [
        (mx.bfloat16, "float32", mx.float32),
        (mx.float16, "float32", mx.float32),
        (mx.bfloat16, "bfloat16", mx.bfloat16),
        (mx.bfloat16, None, mx.bfloat16),
        (mx.float32, "bfloat16", mx.float32),
    ],
)
def test_weights_are_computed_in_float32_where_the_config_names_it_else_as_stored(
    tmp_path: Path, stored: mx.Dtype, named: str | None, expected: mx.Dtype
) -> None:
    module = open_module(write_stored(tmp_path / "target", stored, named))
    assert {part.dtype for _, part in tree_flatten(module.parameters())} == {expected}


def test_every_arm_of_a_comparison_computes_in_the_dtype_of_the_config(tmp_path: Path) -> None:
    folder = write_stored(tmp_path / "target", mx.bfloat16, "float32")
    engine = open_engine(MlxBackend(), str(folder), None)
    assert engine.target.info.dtype == "float32"
    (peer,) = [each for each in mlx_peers(engine, engine.target.module, folder) if hasattr(each, "draft")]
    for module in (peer.module, peer.draft):
        assert module(mx.array([[1, 2, 3]])).dtype == mx.float32


def test_a_dtype_that_was_asked_for_comes_before_that_of_the_config(tmp_path: Path) -> None:
    folder = write_stored(tmp_path / "target", mx.bfloat16, "float32")
    assert open_engine(MlxBackend("bfloat16"), str(folder), None).target.info.dtype == "bfloat16"
