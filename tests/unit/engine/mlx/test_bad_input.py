"""Bad input is one clear error of the engine's tree, raised before anything is computed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from engine.backends.mlx.backend import MlxBackend  # noqa: E402
from engine.drafters.none import NoDrafter  # noqa: E402
from engine.errors import (  # noqa: E402
    BackendMissingError,
    ModelMismatchError,
    ModelNotFoundError,
    ModelWeightsError,
    UsageError,
)
from engine.loading import Engine, load_backend, open_engine  # noqa: E402
from engine.measurement.bounded_answers import Candidate, RecallPlan  # noqa: E402
from engine.measurement.selection import Prompt  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from tests.fakes import tiny_families, tiny_mlx  # noqa: E402


@pytest.fixture(scope="module")
def backend() -> MlxBackend:
    return MlxBackend()


@pytest.fixture(scope="module")
def target(backend: MlxBackend, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return backend.load_target(tiny_mlx.write_target(tmp_path_factory.mktemp("target"), "gemma4"))


def edit_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_a_quantised_format_that_mlx_lm_trips_over_is_an_error_of_the_folder(
    backend: MlxBackend, tmp_path: Path
) -> None:
    folder = tiny_mlx.write_target(tmp_path, "gemma4")
    edit_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelWeightsError, match=r"cannot load .*; check its files"):
        backend.load_target(folder)


def test_a_device_cannot_be_chosen_on_mlx() -> None:
    with pytest.raises(UsageError, match="--device chooses for --backend torch"):
        load_backend("mlx", device="cuda")


def test_a_drafter_with_a_vocabulary_of_its_own_size_is_refused(backend: MlxBackend, tmp_path: Path) -> None:
    import engine.drafters.draft_model as draft_model

    target = backend.load_target(tiny_mlx.write_target(tmp_path / "target", "qwen3"))
    other = dataclasses.replace(target.info, name="other", vocab_size=98)
    with pytest.raises(ModelMismatchError, match="98"):
        draft_model.check_fits(other, target.info, lambda: True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_experts_in_a_dtype_that_the_device_does_not_multiply_are_one_line(
    backend: MlxBackend, tmp_path: Path, dtype: str
) -> None:
    if backend.device != "cpu":
        pytest.skip("a GPU multiplies experts in 16 bits")
    folder = tiny_mlx.write_target(tmp_path / "plain", "gemma4-moe")
    message = rf"^mlx on cpu does not multiply experts in {dtype}: .*\. Use --dtype float32, or --backend torch\.$"
    with pytest.raises(BackendMissingError, match=message):
        MlxBackend(dtype).load_target(folder)
    assert MlxBackend("float32").load_target(folder).info.dtype == "float32"
    # Codes of quantised experts are multiplied by another kernel.
    quantised = MlxBackend(dtype).load_target(tiny_mlx.write_target(tmp_path / "4bit", "gemma4-moe", bits=4))
    assert len(list(quantised.open((), CacheLayout.NATIVE).prefill((5, 6, 7), 2))) == 2


def test_a_folder_as_transformers_writes_it_needs_no_patch(backend: MlxBackend, tmp_path: Path) -> None:
    folder = tiny_mlx.write_target(tmp_path, "gemma4")
    config = json.loads((folder / "config.json").read_text())
    per_layer = {str(index): {"head_dim": 16, "num_key_value_heads": 1} for index in (2, 5)}
    del config["global_head_dim"], config["num_global_key_value_heads"]
    (folder / "config.json").write_text(json.dumps(config | {"per_layer_config": per_layer}))
    sequence = backend.load_target(folder).open((), CacheLayout.NATIVE)
    assert len(list(sequence.prefill((5, 6, 7), 2))) == 2


def test_a_missing_drafter_is_found_before_the_target_is_read(backend: MlxBackend, tmp_path: Path) -> None:
    folder = tiny_mlx.write_target(tmp_path / "broken", "qwen3")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        open_engine(backend, str(folder), "nowhere", roots=str(tmp_path))


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(UsageError, match="'tpu'; expected one of mlx, torch"):
        load_backend("tpu")


def test_a_library_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "engine.backends.mlx.backend", None)
    with pytest.raises(BackendMissingError, match=r"mlx backend cannot be imported.*pip install"):
        load_backend("mlx")


def test_a_folder_for_temporary_files_that_is_none_is_named(
    backend: MlxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend.device != "cpu":
        pytest.skip("MLX compiles into that folder on a CPU alone")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"^TMPDIR is '.*absent', which is no folder; let it name one to write in"):
        MlxBackend()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    MlxBackend()


def test_a_target_of_windows_alone_is_refused_before_an_arm_is_measured(tmp_path):
    """Nothing leaves its caches, and its report would hold no canary: nobody could judge it."""
    backend = load_backend("mlx")
    target = backend.load_target(tiny_families.write_family(tmp_path, "mistral"))
    engine = Engine(backend, target, NoDrafter(), backend.greedy(target), backend.native(target), tmp_path)
    arms = (Candidate.parse("affine8", drafts=False),)
    plan = RecallPlan(arms, (Prompt("p", "needle", (5, 6, 7), "00" * 32, expected="1"),), 4, 512, 0)
    with pytest.raises(UsageError, match="no layer of full attention, so nothing leaves its caches"):
        plan.check(engine)
