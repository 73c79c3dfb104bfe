"""Folders laid out as published targets and drafters open, chat and generate, or one line says what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.checkpoint import INDEX
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.errors import ModelConfigError, ModelMismatchError, ModelWeightsError
from engine.generation.answer import GenerationRequest, generate
from engine.loading import load_backend, open_engine
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from tests.conformance.engine_families import stock
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
    request = GenerationRequest(prompt, BUDGET, frozenset(), (), CacheLayout.NATIVE, 16)
    answer = generate(engine, tokenizer, request, (engine.accept, FixedDepth(3)))
    steps = engine.native.decode(prompt, Stopping(BUDGET), 512)
    assert answer.tokens == tuple(token for step in steps for token in step.tokens)
    assert answer.drafted_tokens > 0
    assert engine.target.info.stop_ids == (1,)


def test_a_target_with_sinks_is_whole_by_names_and_shapes_where_it_runs(backend: Any, tmp_path: Path) -> None:
    target, _ = write_pair(tmp_path, "gpt-oss-20b")
    backend.check_tensors(target)


@pytest.mark.parametrize("name", ["Qwen3-VL-2B", pytest.param("Qwen3-VL-8B", marks=pytest.mark.slow)])
def test_the_language_model_of_a_vision_model_answers_as_that_does(backend: Any, tmp_path: Path, name: str) -> None:
    import torch
    from transformers import AutoModelForImageTextToText

    folder, drafter = write_pair(tmp_path, name)
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    ids = tuple(5 + (index * 7) % (tiny_families.VOCAB - 5) for index in range(60))
    with torch.inference_mode():
        theirs = whole(torch.tensor([ids])).logits[0].numpy()
        answer = whole.generate(
            torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    engine = open_engine(backend, str(folder), str(drafter))
    target: Any = engine.target
    assert np.abs(stock.logits(backend, target, ids) - theirs).max() < 1e-4 * np.abs(theirs).max()
    sequence, opened = target.open(engine.drafter.capture, CacheLayout.NATIVE), engine.drafter.open()
    parts = Parts(sequence, opened, engine.accept, FixedDepth(7), backend.clock)
    tokens = [token for step in speculative(parts, ids, Stopping(24), 16) for token in step.tokens]
    assert tokens == answer[0, len(ids) :].tolist()
    assert tokens == list(stock.greedy(backend, target, ids, 24))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_target_that_is_not_decoded_here_is_one_line(backend: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelConfigError, match="is not supported; expected one of") as caught:
        open_engine(backend, str(write_elsewhere(tmp_path, name)), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "window"), [("qwen2", None), ("mistral", tiny_families.WINDOW)])
def test_a_window_that_no_layer_has_is_none(backend: Any, tmp_path: Path, kind: str, window: int | None) -> None:
    changes = {"sliding_window": tiny_families.WINDOW}
    folder = tiny_families.write_family(tmp_path, kind, **changes, use_sliding_window=False)
    assert open_engine(backend, str(folder), None).target.info.sliding_window == window


def test_a_mistral_that_says_nothing_of_its_window_has_the_first_one(backend: Any, tmp_path: Path) -> None:
    folder = tiny_families.write_family(tmp_path, "mistral")
    config = json.loads((folder / "config.json").read_text())
    del config["sliding_window"]
    (folder / "config.json").write_text(json.dumps(config))
    target: Any = open_engine(backend, str(folder), None).target
    assert target.info.sliding_window == 4096
    prompt = tuple(range(5, 45))
    steps = backend.native(target).decode(prompt, Stopping(BUDGET), 16)
    tokens = [token for step in steps for token in step.tokens]
    sequence = target.open((), CacheLayout.FULL)
    answer = autoregressive(sequence, backend.greedy(target), prompt, Stopping(BUDGET))
    assert tokens == [token for step in answer for token in step.tokens]


STORED = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float64": "F64"}


@pytest.mark.parametrize("kind", STORED)
def test_numbers_that_the_device_does_not_compute_with_are_one_line(backend: Any, tmp_path: Path, kind: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = tiny_families.write_family(tmp_path, "qwen3")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(getattr(torch, kind))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if (backend.name, kind) == ("torch", "float64"):
        assert open_engine(backend, str(folder), None).target.info.dtype == "float32"
        return
    with pytest.raises(ModelWeightsError, match=rf"is of type {STORED[kind]} \(1 tensors are\), which") as caught:
        open_engine(backend, str(folder), None)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("every", [False, True], ids=["one tensor", "all"])
@pytest.mark.parametrize(("kind", "dtype"), [("float8_e4m3fn", "F8_E4M3"), ("int8", "I8"), ("int32", "I32")])
def test_a_drafter_of_numbers_that_are_no_weights_is_one_line(
    backend: Any, tmp_path: Path, kind: str, dtype: str, every: bool
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from tests.fakes import tiny_torch

    target = tiny_families.write_family(tmp_path / "target", "qwen3")
    drafter = tiny_torch.write_dflash(tmp_path / "drafter", dflash_config={"target_layer_ids": [0, 1, 3]})
    tensors = load_file(drafter / "model.safetensors")
    changed = {name: tensors[name].to(getattr(torch, kind)) for name in (tensors if every else ["fc.weight"])}
    save_file(tensors | changed, drafter / "model.safetensors")
    message = rf"^fc\.weight in .* is of type {dtype} \({len(changed)} tensors are\), which a drafter on {backend.name}"
    with pytest.raises(ModelWeightsError, match=message) as caught:
        open_engine(backend, str(target), str(drafter))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("other", ["llama", "gemma3_text"])
def test_a_drafter_of_another_family_is_one_line(backend: Any, tmp_path: Path, other: str) -> None:
    from tests.fakes import tiny_torch

    target = tiny_families.write_family(tmp_path / "target", other)
    drafter = tiny_torch.write_dflash(tmp_path / "drafter", vocab_size=tiny_families.VOCAB + 1)
    with pytest.raises(ModelMismatchError, match="drafter vocab_size is 98; the target 'target' has 97") as caught:
        open_engine(backend, str(target), str(drafter))
    assert "\n" not in str(caught.value)


def test_a_lost_file_of_several_is_one_line_that_names_it(backend: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_families.write_family(tmp_path, "qwen3")
    whole = folder / "model.safetensors"
    named = {name: f"model-{1 + index % 2:05}-of-00002.safetensors" for index, name in enumerate(load_file(whole))}
    (folder / INDEX).write_text(json.dumps({"weight_map": named}))
    # An index that was left behind is none of the weights' that are there.
    if backend.name == "mlx":
        assert open_engine(backend, str(folder), None).target.info.layer_count == 4
    tensors = load_file(whole)
    first = {name: tensors[name] for name, file in named.items() if file.startswith("model-00001")}
    save_file(first, folder / "model-00001-of-00002.safetensors", metadata={"format": "pt"})
    whole.unlink()
    expected = rf"lacks model-00002-of-00002\.safetensors \(1 of the 2 files that {INDEX} names\); fetch them again$"
    with pytest.raises(ModelWeightsError, match=expected):
        open_engine(backend, str(folder), None)


def test_several_files_without_their_index_are_one_line(backend: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_families.write_family(tmp_path, "qwen3")
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    for place in (0, 1):
        part = dict(list(whole.items())[place::2])
        save_file(part, folder / f"model-{place + 1:05}-of-00002.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelWeightsError, match=rf"holds weights in parts \(model-.*; 2 in all\) and no {INDEX} that names them; fetch"
    ):
        open_engine(backend, str(folder), None)


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


def test_a_drafter_in_the_targets_place_is_one_line_that_says_so(backend: Any, tmp_path: Path) -> None:
    from tests.fakes import tiny_torch

    drafter = tiny_torch.write_dflash(tmp_path / "drafter")
    with pytest.raises(
        ModelConfigError, match=r"holds a DFlash drafter; expected its target here\. Name it with --draf"
    ):
        open_engine(backend, str(drafter), None)


OTHER_DRAFTERS = {
    "EAGLE-3": (
        {"architectures": ["LlamaForCausalLMEagle3"]},
        "drafter 'drafter' is a LlamaForCausalLMEagle3; expected",
    ),
    "a speculator": ({"architectures": ["Eagle3Speculator"], "model_type": None}, "is a Eagle3Speculator; expected"),
    "a DFlash one without its layers": (
        {"architectures": ["Qwen3DFlashDraftModel"], "rope_theta": 1e4},
        "drafter config.json has no 'block_size'; expected it in dflash_config or at top level",
    ),
}


@pytest.mark.parametrize("kind", OTHER_DRAFTERS)
def test_a_drafter_of_another_kind_is_one_line(backend: Any, tmp_path: Path, kind: str) -> None:
    changes, message = OTHER_DRAFTERS[kind]
    target = tiny_families.write_family(tmp_path / "target", "qwen3")
    drafter = tiny_families.write_family(tmp_path / "drafter", "llama")
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ModelConfigError, match=message) as caught:
        open_engine(backend, str(target), str(drafter))
    assert "\n" not in str(caught.value)
