"""Folders as people publish them: 16-bit targets, quantised drafters, other class names; and what ends a decode."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.backends.mlx.backend import MlxBackend
from engine.backends.mlx.wired import WiredWeights
from engine.checkpoint import ASSETS
from engine.cli.boundary import guarded
from engine.conversion.drafter_file import read_drafter
from engine.conversion.mlx_folder import write_mlx
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.errors import ModelWeightsError, UsageError
from engine.loading import Engine, load_backend, open_engine
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import StopReason
from tests.fakes import tiny_mlx, tiny_torch

TARGET = ASSETS / "kakeya-tiny-gemma4"
DRAFTER = ASSETS / "kakeya-tiny-gemma4-dflash"
DEPTH, BUDGET = 7, 48


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    chosen = load_prompts("code-structured", Tokenizer(TARGET), TARGET.name).lasting(BUDGET).spread(2)
    return [prompt.ids for prompt in chosen.prompts]


def acceptance(backend: str, dtype: str, drafter: Path, prompts: list[tuple[int, ...]]) -> float:
    engine = open_engine(load_backend(backend, dtype=dtype), str(TARGET), str(drafter))
    assert engine.target.info.dtype == dtype
    steps = [step for ids in prompts for step in decoded(engine, ids) if not step.prefill]
    return sum(step.committed for step in steps) / sum(step.target_forwards for step in steps)


def quantised(source: Path, folder: Path, bits: int) -> Path:
    write_mlx(read_drafter(source), folder, bits, 64)
    return folder


def decoded(engine: Engine, ids: tuple[int, ...], stopping: Stopping | None = None) -> list[Any]:
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    clock = engine.backend.clock
    parts = Parts(sequence, engine.drafter.open(), engine.accept, FixedDepth(DEPTH), clock, engine.resident)
    return list(speculative(parts, ids, stopping or Stopping(BUDGET)))


@pytest.fixture(scope="module")
def usual(prompts: list[tuple[int, ...]]) -> float:
    return acceptance("mlx", "float32", DRAFTER, prompts)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("backend", "dtype"), [("mlx", "float16"), pytest.param("torch", "float16", marks=pytest.mark.slow)]
)
def test_a_16_bit_target_does_not_cost_the_drafter_its_acceptance(
    prompts: list[tuple[int, ...]], usual: float, backend: str, dtype: str
) -> None:
    assert usual > 2.5
    assert acceptance(backend, dtype, DRAFTER, prompts) > 0.85 * usual


@pytest.mark.parametrize("name", ["mlx", "torch"])
def test_features_beyond_float16_stay_finite_in_the_drafter(tmp_path: Path, name: str) -> None:
    import torch

    folder, drafter = tiny_torch.write_target(tmp_path / "t", "qwen3"), tiny_torch.write_dflash(tmp_path / "d")
    engine = open_engine(load_backend(name, dtype="float16"), str(folder), str(drafter))
    sequence: Any = engine.drafter.open()
    width = len(engine.drafter.capture) * engine.target.info.hidden_size
    largest = mx.full((4, width), 6e4, mx.float16) if name == "mlx" else torch.full((4, width), 6e4).half()
    sequence.observe(0, (5, 6, 7, 8), largest)
    drafted = sequence.ask(9, 4, 3)
    _, (keys, values) = sequence.context.kept()
    assert all(
        bool((side.astype(mx.float32) if name == "mlx" else side.float()).abs().max() < 1e30) for side in (keys, values)
    )
    assert drafted.count == 3


@pytest.mark.parametrize("bits", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_a_quantised_drafter_is_read_alike_by_both_backends(
    tmp_path: Path, prompts: list[tuple[int, ...]], usual: float, bits: int
) -> None:
    import torch

    folder = quantised(DRAFTER, tmp_path / "drafter", bits)
    assert acceptance("mlx", "float32", folder, prompts) > (0.9 if bits == 8 else 0.5) * usual
    mlx, other = (open_engine(load_backend(name), str(TARGET), str(folder)) for name in ("mlx", "torch"))
    mine: Any = mlx.drafter
    theirs: Any = other.drafter
    assert torch.allclose(torch.tensor(mine.fc.T.tolist()), theirs.fc, rtol=0, atol=1e-6)
    assert mine.info.digest == theirs.info.digest


def test_codes_that_are_no_affine_ones_are_one_error(tmp_path: Path) -> None:
    target = load_backend("mlx").load_target(TARGET)
    for name, spoil, message in (
        ("bits", lambda tensors: tensors["fc.weight"][:, :-1], r"fc\.weight has codes .* 4 or 8 bits in groups of 32"),
        ("alone", None, r"fc\.scales has no codes or no biases"),
    ):
        folder = quantised(DRAFTER, tmp_path / name, 4)
        tensors = dict(mx.load(str(folder / "model.safetensors")))
        mx.eval(tensors)
        if spoil is None:
            del tensors["fc.biases"]
        else:
            tensors["fc.weight"] = spoil(tensors)
        mx.save_safetensors(str(folder / "model.safetensors"), tensors)
        with pytest.raises(ModelWeightsError, match=message):
            MlxBackend().load_dflash(folder, target)


def test_a_class_name_of_a_trainer_s_own_tree_is_an_alias(tmp_path: Path) -> None:
    folder = shutil.copytree(DRAFTER, tmp_path / "drafter")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3DFlashDraftModel"]}))
    backend = MlxBackend()
    assert backend.load_dflash(folder, backend.load_target(TARGET)).info.format == "dflash-v1"


@pytest.mark.parametrize("name", ["mlx", "torch"])
def test_a_drafter_of_the_cache_is_called_by_its_model(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "models--somebody--Small-DFlash" / "snapshots" / ("0" * 40)
    shutil.copytree(DRAFTER, folder)
    backend = load_backend(name)
    assert backend.load_dflash(folder, backend.load_target(TARGET)).info.name == "Small-DFlash"


def test_memory_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    def too_much() -> int:
        torch.ones(1 << 50)
        return 0

    assert guarded(too_much) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: not enough memory: ")
    assert error.count("\n") == 1


def test_a_dtype_that_is_none_is_refused() -> None:
    for backend in ("mlx", "torch"):
        with pytest.raises(UsageError, match="dtype 'int8'; expected one of float32, bfloat16, float16 or auto"):
            load_backend(backend, dtype="int8")


def test_whoever_decodes_ends_where_the_context_does(tmp_path: Path) -> None:
    folder = tiny_mlx.write_target(tmp_path / "target", "qwen3")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32}))
    engine = open_engine(MlxBackend(), str(folder), str(tiny_mlx.write_dflash(tmp_path / "drafter")))
    prompt = tuple(range(5, 15))
    answers = []
    for decode in (
        lambda stopping: decoded(engine, prompt, stopping),
        lambda stopping: list(engine.native.decode(prompt, stopping, 512)),
        lambda stopping: list(
            autoregressive(engine.target.open((), CacheLayout.FULL), engine.accept, prompt, stopping)
        ),
    ):
        stopping = Stopping(1000)
        assert decode(stopping)[-1].stop == StopReason.CONTEXT
        answers.append(stopping.emitted)
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 22


def test_weights_are_wired_while_anything_decodes_and_let_go_after_the_last(tmp_path: Path) -> None:
    events: list[str] = []

    @contextmanager
    def recorder(module: Any) -> Iterator[None]:
        events.append(f"wired {module is target.module}")
        yield
        events.append("restored")

    folder = tiny_mlx.write_target(tmp_path / "target", "qwen3")
    backend = MlxBackend(wired=WiredWeights(recorder))
    engine = open_engine(backend, str(folder), None)
    target: Any = engine.target
    decoded(engine, (5, 6), Stopping(3))
    assert events == ["wired True", "restored"]
    first, second = (engine.native.decode((5, 6), Stopping(3), 512) for _ in range(2))
    next(first)
    next(second)
    first.close()
    assert events[2:] == ["wired True"]
    second.close()
    assert events[2:] == ["wired True", "restored"]
