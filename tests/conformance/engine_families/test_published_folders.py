"""Folders laid out as published targets and drafters open, chat and generate, or one line says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.decoding.depth import FixedDepth
from engine.errors import ModelConfigError, ModelWeightsError
from engine.generation.answer import GenerationRequest, generate
from engine.loading import load_backend, open_engine
from engine.stopping import Stopping
from engine.tokenizer import Tokenizer
from engine.types import CacheLayout

pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from tests.fakes import tiny_families
from tests.support.published import ELSEWHERE, TARGETS, write_elsewhere, write_pair

BACKENDS = ("mlx", "torch")
SAMPLE = ("Qwen3.5-35B-A3B", "gpt-oss-20b")
BUDGET = 10


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return load_backend(request.param, device="cpu" if request.param == "torch" else None)


@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in TARGETS]
)
def test_a_published_layout_opens_chats_and_generates(backend: Any, tmp_path: Path, name: str) -> None:
    target, drafter = write_pair(tmp_path, name)
    engine = open_engine(backend, str(target), str(drafter))
    tokenizer = Tokenizer(engine.folder)
    prompt = tokenizer.chat([{"role": "user", "content": "Write a function that adds two numbers."}])
    asked = GenerationRequest(prompt, BUDGET, frozenset(), (), CacheLayout.NATIVE, 16)
    answer = generate(engine, tokenizer, asked, (engine.accept, FixedDepth(3)))
    steps = engine.native.decode(prompt, Stopping(BUDGET), 512)
    assert answer.tokens == tuple(token for step in steps for token in step.tokens)
    assert answer.drafted_tokens > 0
    assert engine.target.info.stop_ids == (1,)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_target_that_is_not_decoded_here_is_one_line(backend: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelConfigError, match="is not supported; expected one of") as caught:
        open_engine(backend, str(write_elsewhere(tmp_path, name)), None)
    assert "\n" not in str(caught.value)


LOST = {
    "an expert": ("qwen3_moe", "model.layers.1.mlp.experts.2.up_proj.weight"),
    "half a recurrent layer": ("qwen3_next", "model.layers.2.linear_attn.A_log"),
    "a sink": ("gpt_oss", "model.layers.0.self_attn.sinks"),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_tensor_is_one_line_that_names_it(backend: Any, tmp_path: Path, lost: str) -> None:
    from safetensors.torch import load_file, save_file

    kind, name = LOST[lost]
    folder = tiny_families.write_family(tmp_path, kind)
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelWeightsError, match=r"layers\.\d\.") as caught:
        open_engine(backend, str(folder), None)
    assert "\n" not in str(caught.value)
    assert name.split(".")[-2 if name.endswith("weight") else -1] in str(caught.value)
