"""After every crop a recurrent layer's state is the one that the library leaves behind the same tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.recurrent import CROPPABLE_ROWS
from engine.decoding.depth import FixedDepth
from engine.drafters.draft_model import DraftModel
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.errors import CacheCropError
from engine.generation.answer import GenerationRequest, generate
from engine.generation.conversation import Conversation
from engine.loading import Engine
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.conformance.engine_families import stock
from tests.conformance.engine_families.test_against_stock import prompt_of
from tests.fakes.tiny_families import RECURRENT

BACKENDS = ("mlx", "torch")
NEAR = 2e-5


def forward(sequence: Any, ids: tuple[int, ...]) -> None:
    sequence.forward_block(ids[0], Draft(tokens=ids[1:], count=len(ids) - 1))


def assert_same(actual: list[list[np.ndarray]], expected: list[list[np.ndarray]]) -> None:
    assert len(actual) == len(expected) > 0
    for layer, expected_layer in zip(actual, expected, strict=True):
        for ours, theirs in zip(layer, expected_layer, strict=True):
            assert ours.shape == theirs.shape
            assert np.abs(ours - theirs).max() <= NEAR * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize(
    ("kind", "crops"), [("qwen3_next", 4), *(pytest.param(kind, 40, marks=pytest.mark.slow) for kind in RECURRENT)]
)
@pytest.mark.parametrize("name", BACKENDS)
def test_states_after_every_crop_are_the_librarys(loaded: Callable[..., Any], name: str, kind: str, crops: int) -> None:
    backend, target = loaded(name, kind)
    chooser, prompt = random.Random(11), prompt_of(9, seed=2)
    sequence, reference = target.open((), CacheLayout.NATIVE), stock.States(backend, target, prompt)
    for _ in sequence.prefill(prompt, 512):
        pass
    for _ in range(crops):
        block = prompt_of(chooser.randint(1, 8), chooser.randrange(10**6))
        accepted = chooser.randint(0, len(block))
        forward(sequence, block)
        sequence.crop(sequence.length - len(block) + accepted)
        assert_same(stock.held_states(sequence), reference.after(block[:accepted]))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_sequence_that_keeps_every_row_is_cropped_over_several_appends(loaded: Callable[..., Any], name: str) -> None:
    backend, target = loaded(name, "qwen3_5_text")
    ids = prompt_of(30, seed=4)
    sequence, reference = target.open((), CacheLayout.FULL), stock.States(backend, target, ids[:10])
    for _ in sequence.prefill(ids[:10], 512):
        pass
    sequence.crop(10)
    sequence.draft_ahead(ids[10:13], 6)
    assert sequence.length == 18
    sequence.crop(12)
    assert_same(stock.held_states(sequence), reference.after(ids[10:12]))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_crop_that_one_layer_refuses_moves_none(loaded: Callable[..., Any], name: str) -> None:
    _, target = loaded(name, "qwen3_5_text")
    sequence = target.open((), CacheLayout.NATIVE)
    for _ in sequence.prefill(prompt_of(12, seed=6), 512):
        pass
    forward(sequence, prompt_of(4, seed=7))
    before = stock.held_states(sequence)
    # Rows of keys and values could go back this far; a recurrent state cannot, and half of both would be neither.
    with pytest.raises(CacheCropError, match="crop of a recurrent state to 5 positions; expected 12 <= length <= 16"):
        sequence.crop(5)
    assert sequence.length == 16
    assert_same(stock.held_states(sequence), before)
    sequence.crop(13)
    with pytest.raises(CacheCropError, match="expected 13 <= length <= 13"):
        sequence.crop(12)


class Letters:
    """A tokenizer of which a conversation needs the text alone."""

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(33 + index) for index in ids)


@pytest.mark.parametrize("drafter", ["ngram", "right"])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_turn_goes_on_with_the_state_of_the_turn_before(loaded: Callable[..., Any], name: str, drafter: str) -> None:
    backend, target = loaded(name, "qwen3_5_text")
    model = NgramModel(min_tokens=1) if drafter == "ngram" else DraftModel(target)
    engine = Engine(backend, target, model, backend.greedy(target), backend.native(target), Path())
    conversation, prompt, tokenizer = Conversation(engine, CacheLayout.NATIVE), prompt_of(14, seed=3), Letters()
    for turn in range(3):
        plain = stock.greedy(backend, target, prompt, 16)
        end = plain.index(plain[9]) + 1
        request = GenerationRequest(prompt, 16, frozenset({plain[9]}), (), CacheLayout.NATIVE, 512)
        rule: Any = engine.accept, FixedDepth(7)
        answer = generate(engine, tokenizer, request, rule, conversation=conversation)  # type: ignore[arg-type]
        assert answer.tokens == plain[:end]
        # All of the turn before but what was said since, and the newest token of its answer.
        assert answer.reused_tokens >= (len(prompt) - 4 if turn else 0)
        prompt = (*prompt, *answer.tokens, *prompt_of(3, seed=40 + turn))


def test_each_turn_counts_the_slow_forwards_of_its_own_answer(loaded: Callable[..., Any]) -> None:
    backend, target = loaded("torch", "qwen3_5_text")
    engine = Engine(backend, target, NoDrafter(), backend.greedy(target), backend.native(target), Path())
    conversation, prompt, tokenizer = Conversation(engine, CacheLayout.NATIVE), prompt_of(14, seed=3), Letters()
    for turn in range(3):
        request = GenerationRequest(prompt, 6, frozenset(), (), CacheLayout.NATIVE, 512)
        rule: Any = engine.accept, FixedDepth(0)
        answer = generate(engine, tokenizer, request, rule, conversation=conversation)  # type: ignore[arg-type]
        assert (answer.reused_tokens > 0) == (turn > 0)
        assert sum(answer.eager_forwards.values()) == answer.target_forwards == 5
        prompt = (*prompt, *answer.tokens, *prompt_of(3, seed=40 + turn))


@pytest.mark.parametrize("name", BACKENDS)
def test_memory_is_the_state_and_what_one_block_takes_to_go_back(loaded: Callable[..., Any], name: str) -> None:
    _, target = loaded(name, "qwen3_5_text")
    sequence = target.open((), CacheLayout.NATIVE)
    for _ in sequence.prefill(prompt_of(CROPPABLE_ROWS + 20, seed=8), CROPPABLE_ROWS + 1):
        pass
    caches = [cache for cache in getattr(sequence.caches, "layers", sequence.caches) if hasattr(cache, "state")]
    settled = []
    for _ in range(3):
        forward(sequence, prompt_of(4, seed=9))
        size = sum(cache.measured_bytes() for cache in caches)
        sequence.crop(sequence.length - 2)
        settled.append((size, sum(cache.measured_bytes() for cache in caches)))
    assert len(set(settled)) == 1
    size, cropped = settled[0]
    assert cropped < size
