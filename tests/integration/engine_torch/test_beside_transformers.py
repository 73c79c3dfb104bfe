"""On torch: tokens, captured states and buffers are those of transformers, wrapped text models included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.decoding.depth import FixedDepth
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.loading import Engine
from engine.measurement.arms import SPECULATIVE, ArmSettings, start
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from tests.fakes.tiny_torch import CONFIGS, GEMMA, WINDOW, write_wrapped
from tests.support.decoding import BUDGET, drafted, plain, prompt_of, tokens_of
from tests.support.pairwise import star

KINDS = list(CONFIGS)
LAYOUTS = [CacheLayout.NATIVE, CacheLayout.FULL]
LENGTHS = {"one token": 1, "at the window": WINDOW, "across": WINDOW + 3, "far past": 61}


@pytest.mark.parametrize(("kind", "length"), star(("gemma4", "across"), KINDS, LENGTHS))
def test_plain_decoding_equals_transformers_generate(backend: Any, targets: Any, kind: str, length: int) -> None:
    target, prompt = targets[kind], prompt_of(length)
    expected = target.module.generate(
        torch.tensor([prompt]), max_new_tokens=26, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    expected_tokens = tuple(expected[0, length:].tolist())
    assert len(set(expected_tokens)) > 3
    assert plain(backend, target, prompt, 26) == expected_tokens


@pytest.mark.parametrize("kind", KINDS)
def test_captured_states_are_transformers_hidden_states(targets: Any, kind: str) -> None:
    target, prompt = targets[kind], prompt_of(30)
    layers = (0, 2, 4)
    with torch.inference_mode():
        whole = target.module(torch.tensor([prompt]), output_hidden_states=True)
    expected = torch.cat([whole.hidden_states[layer + 1][0] for layer in layers], dim=-1)
    for chunk in (512, 11):
        sequence = target.open(layers, CacheLayout.NATIVE)
        forwards = list(sequence.prefill(prompt, chunk))
        features = torch.cat([sequence.committed(forward, forward.rows) for forward in forwards])
        torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(forwards[-1].logits, whole.logits[0, -1:], atol=1e-4, rtol=1e-5)
        assert [forward.logits is None for forward in forwards[:-1]] == [True] * (len(forwards) - 1)


def test_a_text_model_inside_the_multimodal_wrapper_decodes_as_transformers_does(
    backend: Any, folders: Any, tmp_path: Any
) -> None:
    target, prompt = backend.load_target(write_wrapped(tmp_path)), prompt_of(30)
    with torch.inference_mode():
        whole = target.module(torch.tensor([prompt])).logits[0, -1]
    *_, last = target.open((), CacheLayout.NATIVE).prefill(prompt, 8)
    torch.testing.assert_close(last.logits[0], whole, atol=1e-4, rtol=1e-5)
    expected = tokens_of(list(backend.native(target).decode(prompt, Stopping(BUDGET), 512)))
    dflash = backend.load_dflash(folders / "dflash", target)
    assert tokens_of(drafted(backend, target, dflash, prompt, Stopping(BUDGET))) == expected


def test_the_sliding_layers_hold_window_and_block_and_the_full_layout_holds_everything(targets: Any) -> None:
    target, prompt = targets["gemma4"], prompt_of(400)
    bytes_by_layout = {}
    for layout in LAYOUTS:
        sequence = target.open((), layout)
        for _ in sequence.prefill(prompt, 64):
            pass
        sequence.crop(len(prompt))
        sequence.forward_block(5, _draft(7))
        sequence.crop(len(prompt) + 1)
        bytes_by_layout[layout] = [layer.measured_bytes() for layer in sequence.caches.layers]
        assert sequence.measured_bytes() == sum(bytes_by_layout[layout])
    row_bytes = 2 * 2 * 8 * 4
    for native, full, kind in zip(
        bytes_by_layout[CacheLayout.NATIVE], bytes_by_layout[CacheLayout.FULL], target.family.kinds, strict=True
    ):
        if kind == "sliding_attention":
            # A block of up to 16 rows and as many rows of slack beside the window.
            assert native <= row_bytes * (WINDOW + 2 * 16)
            assert full >= row_bytes * 400
        else:
            assert native == full


def _draft(count: int) -> Any:
    from engine.types import Draft

    return Draft(tokens=tuple(range(5, 5 + count)), count=count)


@pytest.mark.ci
def test_the_unified_model_s_text_decodes_as_stock_does(backend: Any, tmp_path: Path) -> None:
    import transformers

    values = {key: value for key, value in GEMMA.items() if "per_layer_input" not in key}
    torch.manual_seed(5)
    module = transformers.Gemma4UnifiedForCausalLM(transformers.Gemma4UnifiedTextConfig(**values)).float()
    module.save_pretrained(tmp_path)
    target = backend.load_target(tmp_path)
    prompt = tuple(range(5, 25))
    native = tokens_of(list(backend.native(target).decode(prompt, Stopping(12), 512)))
    assert tokens_of(drafted(backend, target, NgramModel(), prompt, Stopping(12), depth=3)) == native


def test_the_baseline_forwards_a_prompt_in_chunks_of_its_own_library(backend: Any, targets: Any, folders: Any) -> None:
    target = targets["qwen3"]
    engine = Engine(backend, target, NoDrafter(), backend.greedy(target), backend.native(target), folders / "qwen3")
    settings, forwards = ArmSettings(CacheLayout.NATIVE, lambda: FixedDepth(0), 64), {}
    for arm in (SPECULATIVE, "native"):
        running = start(engine, arm, settings, prompt_of(300), Stopping(2))
        forwards[arm] = next(iter(running.steps)).target_forwards
    assert forwards == {SPECULATIVE: 5, "native": 1}
