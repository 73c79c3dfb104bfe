"""Speculative decoding emits what plain decoding emits, for every drafter, cache layout and model, in fp32."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Step, StopReason
from tests.fakes.decoding_ahead import until_told
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tiny_torch import CONFIGS, GEMMA, MASK_ID, VOCAB, WINDOW, write_wrapped
from tests.support.pairwise import matrix, star

KINDS = list(CONFIGS)
LAYOUTS = [CacheLayout.NATIVE, CacheLayout.FULL]
LENGTHS = {"one token": 1, "at the window": WINDOW, "across": WINDOW + 3, "far past": 61}
BUDGET = 16


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(5, VOCAB, (length,), generator=generator).tolist())


def tokens_of(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def plain(backend: Any, target: Any, prompt: tuple[int, ...], budget: int = BUDGET) -> tuple[int, ...]:
    """The oracle: every row kept, the whole prompt in one chunk, one token at a time."""
    sequence = target.open((), CacheLayout.FULL)
    return tuple(tokens_of(list(autoregressive(sequence, backend.greedy(target), prompt, Stopping(budget), 512))))


def drafted(
    backend: Any,
    target: Any,
    drafter: Any,
    prompt: tuple[int, ...],
    stopping: Stopping,
    depth: int = 7,
    layout: CacheLayout = CacheLayout.NATIVE,
    chunk: int = 512,
) -> list[Step]:
    sequence = target.open(drafter.capture, layout)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
    steps = list(speculative(parts, prompt, stopping, chunk))
    assert sequence.length == steps[-1].position
    return steps


@pytest.mark.parametrize(("kind", "length"), star(("gemma4", "across"), KINDS, LENGTHS))
def test_plain_decoding_equals_transformers_generate(backend: Any, targets: Any, kind: str, length: int) -> None:
    target, prompt = targets[kind], prompt_of(length)
    expected = target.module.generate(
        torch.tensor([prompt]), max_new_tokens=26, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    expected_tokens = tuple(expected[0, length:].tolist())
    assert len(set(expected_tokens)) > 3
    assert plain(backend, target, prompt, 26) == expected_tokens
    native = backend.native(target)
    for chunk in (512, 7):
        assert tuple(tokens_of(list(native.decode(prompt, Stopping(26), chunk)))) == expected_tokens
    assert native.measured_bytes() > 0


@pytest.mark.parametrize(
    ("kind", "layout", "length"), star(("gemma4", str(CacheLayout.NATIVE), "across"), KINDS, LAYOUTS, LENGTHS)
)
def test_every_real_drafter_is_lossless(
    backend: Any, folders: Any, targets: Any, kind: str, layout: CacheLayout, length: int
) -> None:
    target, prompt = targets[kind], prompt_of(length)
    expected = list(plain(backend, target, prompt))
    dflash = backend.load_dflash(folders / "dflash", target)
    ngram = NgramModel(min_tokens=1)
    for drafter, depth, chunk in (
        (dflash, 7, 5),
        (dflash, 2, 512),
        (ngram, 5, 512),
        (NoDrafter(), 4, 7),
        (dflash, 0, 9),
    ):
        steps = drafted(backend, target, drafter, prompt, Stopping(BUDGET), depth, layout, chunk)
        assert tokens_of(steps) == expected, f"{drafter.info.name} depth {depth} chunk {chunk}"


ADVERSARIES: dict[str, Callable[[int], Callable[[int, int], bool]]] = {
    "always right": lambda _: lambda step, index: False,
    "always wrong": lambda _: lambda step, index: True,
    "right then wrong": lambda place: lambda step, index: index >= place,
    "wrong at one place": lambda place: lambda step, index: index == place,
    "another place each step": lambda place: lambda step, index: index == (step * 3 + place) % 8,
}


@pytest.mark.parametrize(("kind", "adversary", "layout"), matrix(KINDS, list(ADVERSARIES), LAYOUTS))
def test_adversarial_drafters_change_no_token(
    backend: Any, targets: Any, kind: str, adversary: str, layout: CacheLayout
) -> None:
    target, prompt = targets[kind], prompt_of(WINDOW + 3)
    answer = plain(backend, target, prompt)
    every_place = range(8) if kind == "gemma4" and layout is CacheLayout.NATIVE else (0, 3, 6)
    for place in every_place if "place" in adversary or "then" in adversary else (0,):
        model = ScriptedModel(answer, len(prompt), VOCAB, ADVERSARIES[adversary](place), capture=(0, 3))
        steps = drafted(backend, target, model, prompt, Stopping(BUDGET), 7, layout)
        assert tokens_of(steps) == list(answer), f"wrong from {place}"
        accepted = [step.accepted for step in steps if step.drafted]
        if adversary == "always wrong":
            assert set(accepted) == {0}
        if adversary == "always right":
            assert accepted == [step.drafted for step in steps if step.drafted]
        if adversary == "right then wrong":
            assert set(accepted[:-1]) == {min(place, 7)}


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["gemma4", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_a_stop_at_every_position_ends_both_ways_of_decoding_alike(backend: Any, targets: Any, kind: str) -> None:
    target, prompt = targets[kind], prompt_of(WINDOW + 3)
    answer = plain(backend, target, prompt)
    right = ScriptedModel(answer, len(prompt), VOCAB, lambda step, index: False)
    for place, token in enumerate(answer):
        first = answer.index(token)
        steps = drafted(backend, target, right, prompt, Stopping(BUDGET, frozenset({token})))
        assert tokens_of(steps) == list(answer[: first + 1])
        assert steps[-1].stop is StopReason.EOS
        steps = drafted(backend, target, right, prompt, Stopping(place + 1))
        assert tokens_of(steps) == list(answer[: place + 1])
        assert steps[-1].stop is StopReason.BUDGET


def test_a_mask_id_that_is_a_stop_id_ends_nothing_but_itself(backend: Any, folders: Any, targets: Any) -> None:
    target, prompt = targets["gemma4"], prompt_of(WINDOW + 3)
    answer = plain(backend, target, prompt)
    assert MASK_ID not in answer
    dflash = backend.load_dflash(folders / "dflash", target)
    steps = drafted(backend, target, dflash, prompt, Stopping(BUDGET, frozenset({MASK_ID})))
    assert tokens_of(steps) == list(answer)
    assert steps[-1].stop is StopReason.BUDGET


@pytest.mark.ci
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_ahead_may_stop_anywhere_and_go_on_exactly(
    backend: Any, targets: Any, kind: str, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, prompt = targets[kind], prompt_of(WINDOW + 3)
    answer = plain(backend, target, prompt)
    monkeypatch.setattr(target, "ahead", ahead)
    for taken in (1, 2, 5):
        sequence = target.open((), CacheLayout.NATIVE)
        *_, last = sequence.prefill(prompt, 512)
        bonus = backend.greedy(target).first(last).bonus
        for count, (outcome, forward) in enumerate(sequence.decode_ahead(bonus, 20), start=1):
            bonus = outcome.bonus
            if count == taken:
                sequence.crop(forward.start + 1)
                break
        assert bonus == answer[taken]
        rest = [outcome.bonus for outcome, _ in sequence.decode_ahead(bonus, 10)]
        assert rest == list(answer[taken + 1 : taken + 11])
        assert sequence.length == len(prompt) + taken + 10


@pytest.mark.parametrize("ahead", [False, True])
def test_the_forward_that_is_under_way_is_the_last_once_decoding_ahead_is_to_end(
    backend: Any, targets: Any, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, prompt = targets["gemma4"], prompt_of(WINDOW + 3)
    answer = list(plain(backend, target, prompt))
    monkeypatch.setattr(target, "ahead", ahead)
    for taken in (1, 2, 5):
        sequence = target.open((), CacheLayout.NATIVE)
        *_, last = sequence.prefill(prompt, 512)
        tokens = until_told(sequence, backend.greedy(target).first(last).bonus, taken)
        assert tokens == answer[: taken + 1 + ahead]
        assert sequence.length == len(prompt) + taken + ahead
        rest = [outcome.bonus for outcome, _ in sequence.decode_ahead(tokens[-1], 5)]
        assert rest == answer[len(tokens) : len(tokens) + 5]


@pytest.mark.ci
def test_two_models_on_two_threads_decode_as_they_do_alone(backend: Any, folders: Any, targets: Any) -> None:
    expected, in_threads = {}, {}

    def run(kind: str, seed: int, into: dict[tuple[str, int], list[int]]) -> None:
        dflash = backend.load_dflash(folders / "dflash", targets[kind])
        into[kind, seed] = tokens_of(drafted(backend, targets[kind], dflash, prompt_of(40, seed), Stopping(BUDGET)))

    work = [(kind, seed) for kind in ("gemma4", "qwen3") for seed in range(3)]
    for kind, seed in work:
        run(kind, seed, expected)
    threads = [threading.Thread(target=run, args=(kind, seed, in_threads)) for kind, seed in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_threads == expected


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
