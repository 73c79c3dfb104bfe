"""Every family on either backend computes and decodes what the library's own model does, drafted or not, in fp32."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.conformance.engine_families import stock
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tiny_families import CONFIGS, VOCAB, WINDOW

BACKENDS = ("mlx", "torch")
NEAR = 1e-4
PROMPTS = 24
LENGTHS = (1, WINDOW - 1, WINDOW, WINDOW + 3, 30, 61)


def prompt_of(length: int, seed: int) -> tuple[int, ...]:
    chooser = random.Random(seed)
    return tuple(chooser.randrange(5, VOCAB) for _ in range(length))


def values(logits: Any) -> np.ndarray:
    return np.asarray(logits.tolist())


def drafted(backend: Any, target: Any, drafter: Any, prompt: tuple[int, ...], budget: int, chunk: int) -> list[int]:
    sequence = target.open(drafter.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(7), backend.clock)
    return [token for step in speculative(parts, prompt, Stopping(budget), chunk) for token in step.tokens]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("name", BACKENDS)
def test_logits_are_the_models_own_across_chunks_blocks_and_crops(
    loaded: Callable[..., Any], name: str, kind: str
) -> None:
    backend, target = loaded(name, kind)
    ids = prompt_of(3 * WINDOW + 4, seed=3)
    expected, largest = stock.logits(backend, target, ids), []
    sequence = target.open((0, 1), CacheLayout.NATIVE)
    *_, last = sequence.prefill(ids[:20], 9)
    largest.append(np.abs(values(last.logits)[0] - expected[19]).max())
    position = 20
    for rows, accepted in ((8, 3), (1, 1), (5, 5), (8, 1), (4, 2)):
        forward = sequence.forward_block(
            ids[position], Draft(tokens=ids[position + 1 : position + rows], count=rows - 1)
        )
        largest.append(np.abs(values(forward.logits) - expected[position : position + rows]).max())
        assert sequence.committed(forward, accepted).shape == (accepted, 2 * target.info.hidden_size)
        position += accepted
        sequence.crop(position)
        assert sequence.length == position
    assert max(largest) < NEAR * np.abs(expected).max()


@pytest.mark.parametrize("kind", CONFIGS)
def test_both_backends_read_one_model_from_a_folder(loaded: Callable[..., Any], kind: str) -> None:
    ids = prompt_of(2 * WINDOW, seed=5)
    mlx, torch = (stock.logits(*loaded(name, kind), ids) for name in BACKENDS)
    assert np.abs(mlx - torch).max() < NEAR * np.abs(mlx).max()


def check_tokens(backend: Any, target: Any, drafters: list[Any], prompt: tuple[int, ...], budget: int) -> None:
    expected = list(stock.greedy(backend, target, prompt, budget))
    wrong: list[Callable[[int, int], bool]] = [
        lambda step, index: index >= 3,
        lambda step, index: index == (step * 3 + 1) % 8,
    ]
    scripted = [ScriptedModel(tuple(expected), len(prompt), VOCAB, rule) for rule in wrong]
    for turn, drafter in enumerate([NoDrafter(), NgramModel(min_tokens=1), *scripted, *drafters]):
        tokens = drafted(backend, target, drafter, prompt, budget, (512, 7)[turn % 2])
        assert tokens == expected, f"{drafter.info.name} after {len(prompt)} tokens"


# Quick: every family on one backend; its logits across blocks and crops are compared on both.
ANSWERS = [
    pytest.param(name, kind, marks=() if (index + place) % 2 else pytest.mark.slow)
    for place, name in enumerate(BACKENDS)
    for index, kind in enumerate(CONFIGS)
]


@pytest.mark.parametrize(("name", "kind"), ANSWERS)
def test_a_drafted_answer_past_the_window_is_stock_greedy_decoding(
    loaded: Callable[..., Any], name: str, kind: str
) -> None:
    backend, target = loaded(name, kind)
    check_tokens(backend, target, [], prompt_of(WINDOW + 3, seed=1), budget=12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("name", BACKENDS)
def test_two_dozen_answers_are_stock_greedy_decoding(
    loaded: Callable[..., Any], dflash_folder: Path, name: str, kind: str
) -> None:
    backend, target = loaded(name, kind)
    dflash = backend.load_dflash(dflash_folder, target)
    for seed in range(PROMPTS):
        check_tokens(backend, target, [dflash], prompt_of(LENGTHS[seed % len(LENGTHS)], seed), budget=16)
