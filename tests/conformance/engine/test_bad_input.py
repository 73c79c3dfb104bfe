"""Bad input is one clear error on both backends, the same one, raised before anything is computed with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError, ModelConfigError, ModelMismatchError, ModelWeightsError, PromptError
from engine.loading import load_backend
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout

pytest.importorskip("torch", reason="it writes the random checkpoints")
from safetensors.torch import load_file, save_file

from tests.fakes import tiny_torch


@pytest.fixture(scope="module", params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
        return load_backend("mlx")
    return load_backend("torch", device="cpu")


@pytest.fixture(scope="module")
def target(backend: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return backend.load_target(tiny_torch.write_target(tmp_path_factory.mktemp("target"), "gemma4"))


def edit_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def fill_first(value: float) -> Callable[[dict[str, Any], str], Any]:
    return lambda tensors, name: tensors[name].view(-1)[:1].fill_(value)


TENSOR_FAULTS: dict[str, tuple[Callable[[dict[str, Any], str], Any], str]] = {
    "missing": (lambda tensors, name: tensors.pop(name), "[Mm]issing|lacks"),
    "misshapen": (lambda tensors, name: tensors.update({name: tensors[name][:-1].clone()}), "shape"),
    "nan": (fill_first(float("nan")), "NaN or infinite"),
    "infinite": (fill_first(float("inf")), "NaN or infinite"),
}


def spoil(folder: Path, name: str, fault: str) -> str:
    """Spoil one tensor of a checkpoint; return what its error must match."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change, message = TENSOR_FAULTS[fault]
    change(tensors, name)
    save_file(tensors, path, metadata={"format": "pt"})
    return message


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_a_target_with_a_bad_tensor_is_refused(backend: Any, tmp_path: Path, fault: str) -> None:
    folder = tiny_torch.write_target(tmp_path, "gemma4")
    message = spoil(folder, "model.layers.1.mlp.up_proj.weight", fault)
    with pytest.raises(ModelWeightsError, match=message):
        backend.load_target(folder)


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_a_drafter_with_a_bad_tensor_is_refused(backend: Any, target: Any, tmp_path: Path, fault: str) -> None:
    folder = tiny_torch.write_dflash(tmp_path)
    message = spoil(folder, "fc.weight", fault)
    with pytest.raises(ModelWeightsError, match=message):
        backend.load_dflash(folder, target)


DRAFTER_FAULTS: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "vocabulary": ({"vocab_size": 96}, ModelMismatchError, "vocab_size is 96"),
    "hidden size": ({"hidden_size": 48}, ModelMismatchError, "hidden_size is 48"),
    "layer count": ({"num_target_layers": 7}, ModelMismatchError, "num_target_layers is 7"),
    "mask past the vocabulary": ({"dflash_config": {"mask_token_id": 97}}, ModelMismatchError, "mask_token_id is 97"),
    "negative mask": ({"dflash_config": {"mask_token_id": -1}}, ModelMismatchError, "mask_token_id is -1"),
    "layer past the target": ({"dflash_config": {"target_layer_ids": [1, 6]}}, ModelMismatchError, "layer 6"),
    "second generation without its parts": (
        {"architectures": ["DFlash2DraftModel"]},
        ModelConfigError,
        "conv_kernel_size is None; DFlash2DraftModel needs",
    ),
    "one row": ({"dflash_config": {"block_size": 1}}, ModelConfigError, "block_size is 1"),
}


@pytest.mark.parametrize("fault", DRAFTER_FAULTS)
def test_a_drafter_of_another_target_is_refused(backend: Any, target: Any, tmp_path: Path, fault: str) -> None:
    changes, error, message = DRAFTER_FAULTS[fault]
    folder = tiny_torch.write_dflash(tmp_path)
    nested = json.loads((folder / "config.json").read_text())["dflash_config"] | changes.get("dflash_config", {})
    edit_config(folder, **(changes | {"dflash_config": nested}))
    with pytest.raises(error, match=message):
        backend.load_dflash(folder, target)


def test_an_unknown_model_type_is_refused_by_name(backend: Any, tmp_path: Path) -> None:
    folder = edit_config(tiny_torch.write_target(tmp_path, "qwen3"), model_type="mamba")
    with pytest.raises(ModelConfigError, match=r"model type 'mamba'.*expected one of "):
        backend.load_target(folder)


def test_a_folder_without_weights_is_refused(backend: Any, tmp_path: Path) -> None:
    folder = tiny_torch.write_target(tmp_path, "qwen3")
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelWeightsError, match="git lfs pull"):
        backend.load_target(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelWeightsError, match=r"no model\*\.safetensors"):
        backend.load_target(folder)


def test_a_damaged_file_is_refused(backend: Any, target: Any, tmp_path: Path) -> None:
    folders = (tiny_torch.write_dflash(tmp_path / "drafter"), tiny_torch.write_target(tmp_path / "target", "qwen3"))
    for folder in folders:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ModelWeightsError, match=r"cannot read .*fetch the file again"):
        backend.load_dflash(folders[0], target)
    with pytest.raises(ModelWeightsError, match=r"cannot read .*fetch the file again"):
        backend.load_target(folders[1])


def test_a_config_that_is_no_object_is_refused(backend: Any, tmp_path: Path) -> None:
    folder = tiny_torch.write_target(tmp_path, "qwen3")
    for text, message in (("[]", "holds a list"), ("{", "cannot read")):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelConfigError, match=message):
            backend.load_target(folder)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ((), "no tokens"),
        ((5,) * 512, "512 positions"),
        ((5, 97), "token id 97; expected 0 <= id < 97"),
        ((5, -1), "token id -1"),
    ],
)
def test_a_prompt_that_cannot_be_decoded_is_refused(
    backend: Any, target: Any, prompt: tuple[int, ...], message: str
) -> None:
    with pytest.raises(PromptError, match=message):
        next(target.open((), CacheLayout.NATIVE).prefill(prompt, 64))
    with pytest.raises(PromptError, match=message):
        next(backend.native(target).decode(prompt, Stopping(4), 64))


def test_a_layer_that_does_not_exist_cannot_be_captured(target: Any) -> None:
    with pytest.raises(ModelMismatchError, match="the target has 6"):
        target.open((2, 6), CacheLayout.NATIVE)
