"""Bad input is one clear error of the engine's tree, raised before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.torch.backend import TorchBackend, check_dtype, check_transformers, pick_device, wants_graphs
from engine.backends.torch.graphs.recording import too_old
from engine.backends.torch.probe import fits
from engine.errors import (
    BackendMissingError,
    ModelConfigError,
    ModelError,
    ModelWeightsError,
    UsageError,
)
from engine.loading import load_backend
from engine.verification.rejection import Sampling
from tests.fakes import tiny_torch


@pytest.fixture(scope="module")
def backend() -> TorchBackend:
    return TorchBackend(device="cpu")


@pytest.fixture(scope="module")
def target(backend: TorchBackend, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return backend.load_target(tiny_torch.write_target(tmp_path_factory.mktemp("target"), "qwen3"))


def edit_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def edit_tensors(folder: Path, change: Any) -> Path:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


UNUSED_TENSORS = {
    "a bias that the config leaves out": "model.layers.1.self_attn.q_proj.bias",
    "a layer behind the last": "model.layers.99.mlp.up_proj.weight",
    "a tensor of another model": "model.layers.0.self_attn.sinks",
}


@pytest.mark.parametrize("fault", UNUSED_TENSORS)
def test_a_target_with_a_tensor_that_is_not_computed_with_is_refused(
    backend: TorchBackend, tmp_path: Path, fault: str
) -> None:
    name = UNUSED_TENSORS[fault]
    folder = edit_tensors(
        tiny_torch.write_target(tmp_path, "qwen3"), lambda tensors: tensors.update({name: torch.ones(8)})
    )
    with pytest.raises(ModelWeightsError, match=f"{name}.*does not compute with"):
        backend.load_target(folder)


def test_a_wrapper_that_transformers_opens_with_its_other_parts_alone_is_one_line(
    backend: TorchBackend, tmp_path: Path
) -> None:
    folder = tiny_torch.write_target(tmp_path, "qwen3")
    text = json.loads((folder / "config.json").read_text())
    wrapper = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "text_config": text}
    (folder / "config.json").write_text(json.dumps(wrapper))
    with pytest.raises(ModelConfigError, match=r"'llava' around its language model.*or --backend mlx"):
        backend.load_target(folder)


def test_towers_heads_and_tables_beside_a_target_are_known_by_name(backend: TorchBackend, tmp_path: Path) -> None:
    beside = ("mtp.fc.weight", "model.visual.patch_embed.proj.weight", "model.layers.0.self_attn.rotary_emb.inv_freq")
    folder = edit_tensors(
        tiny_torch.write_target(tmp_path, "qwen3"),
        lambda tensors: tensors.update({name: torch.ones(8) for name in beside}),
    )
    assert backend.load_target(folder).info.layer_count > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, "quantised by mlx-lm.*--backend mlx"),
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers .* is 6; expected a whole number below"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope type.*longrope"),
        ({"layer_types": "full"}, "layer_types lists 'full' layers; expected a list of 6"),
    ],
)
def test_a_target_config_that_cannot_be_honoured_is_refused(
    backend: TorchBackend, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = edit_config(tiny_torch.write_target(tmp_path, "qwen3"), **changes)
    with pytest.raises(ModelConfigError, match=message):
        backend.load_target(folder)


def test_a_config_that_transformers_refuses_is_an_error_of_the_folder(backend: TorchBackend, tmp_path: Path) -> None:
    folder = edit_config(tiny_torch.write_target(tmp_path, "gemma4"), quantization_config={"quant_method": "gptq"})
    with pytest.raises(ModelError, match=r"(?s)cannot load .*; check its files"):
        backend.load_target(folder)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_missing_device_is_named() -> None:
    with pytest.raises(BackendMissingError, match="finds no NVIDIA device"):
        pick_device("cuda")


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(BackendMissingError, match="'tpu'; the torch backend knows cpu and cuda"):
        pick_device("tpu")


def test_a_dtype_that_a_device_does_not_compute_in_is_named() -> None:
    # The meta device computes nothing at all.
    with pytest.raises(BackendMissingError, match=r"device meta does not compute in float16.*--dtype float32"):
        check_dtype("float16", torch.device("meta"))
    with pytest.raises(UsageError, match="dtype 'float8'"):
        check_dtype("float8", torch.device("cpu"))


def test_graphs_that_must_be_and_cannot_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(BackendMissingError, match=r"--cuda-graphs on with device cpu; expected an NVIDIA device"):
        TorchBackend("cpu", cuda_graphs="on")
    with pytest.raises(UsageError, match="--backend torch"):
        load_backend("mlx", cuda_graphs="on")


def test_a_torch_that_records_nothing_says_so() -> None:
    assert too_old("2.13.0+cpu") is None
    assert too_old("2.11.1") == "torch 2.11.1 is installed; recorded forwards need 2.12 or later"


def test_graphs_follow_the_device_unless_told_otherwise(tmp_path: Path) -> None:
    assert [wants_graphs("auto", torch.device(kind)) for kind in ("cpu", "cuda")] == [False, True]
    assert [wants_graphs("off", torch.device(kind)) for kind in ("cpu", "cuda")] == [False, False]
    assert wants_graphs("on", torch.device("cuda"))
    folder = tiny_torch.write_target(tmp_path, "qwen3")
    assert [TorchBackend("cpu", cuda_graphs=mode).load_target(folder).slots for mode in ("auto", "off")] == [None] * 2


@pytest.mark.parametrize("version", ["4.57.1", "5.19.0"])
def test_an_old_transformers_is_refused(version: str) -> None:
    with pytest.raises(BackendMissingError, match=f"transformers {version} is installed"):
        check_transformers(version)
    check_transformers("5.23.0")


def test_a_probe_passes_no_transformers_that_the_backend_refuses() -> None:
    for version in ("5.0.0", "5.19.2"):
        assert fits(version) == (False, f"transformers {version}, at least 5.20 is needed", version)
        with pytest.raises(BackendMissingError, match=r"needs 5\.20 or later"):
            check_transformers(version)
    assert fits("5.20.0rc1")[0]
    check_transformers("5.20.0rc1")


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}]
)
def test_sampling_settings_that_describe_no_distribution_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Sampling(**settings)
