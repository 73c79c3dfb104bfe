"""Replayed forwards decode what plain ones decode: the battery of the growing caches, on a recorder without a card."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from engine.backends.torch.graphs.slots import Slots
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.draft_model import DraftModel
from engine.errors import CacheCropError
from engine.generation.conversation import Conversation
from engine.loading import Engine, load_backend, open_engine
from engine.measurement.arms import SPECULATIVE, ArmSettings, start
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Draft
from tests.fakes import tiny_torch
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tape import Tape
from tests.fakes.tiny_torch import CONFIGS, VOCAB, WINDOW
from tests.integration.engine_torch.replaying import BLOCK, CAPTURE, LENGTHS, run, slots
from tests.support.decoding import ADVERSARIES, BUDGET, prompt_of, tokens_of
from tests.support.pairwise import star


@pytest.mark.parametrize(
    ("kind", "length", "ahead"),
    star(("gemma4", "across", "read first"), list(CONFIGS), LENGTHS, {"read first": False, "queue first": True}),
)
def test_a_network_drafts_at_every_depth_and_changes_no_token(
    backend: Any, folders: Any, graphed: Any, answers: Any, kind: str, length: int, ahead: bool
) -> None:
    target, prompt = graphed[kind], prompt_of(length)
    target.ahead = ahead
    dflash = backend.load_dflash(folders / "dflash", target)
    for depth in range(8) if (kind, length, ahead) == ("gemma4", WINDOW + 3, False) else (0, 7):
        steps, fell_back = run(backend, target, dflash, prompt, depth, chunk=(512, 5)[depth % 2])
        assert tokens_of(steps) == answers(kind, prompt), f"depth {depth}"
        assert fell_back == {}, f"depth {depth}"
        assert depth == 0 or sum(step.drafter_forwards for step in steps) > 0


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["gemma4", pytest.param("gemma4-shared", marks=pytest.mark.slow)])
def test_every_row_on_sliding_layers_decodes_the_same(
    backend: Any, folders: Any, graphed: Any, answers: Any, kind: str
) -> None:
    target = graphed[kind]
    dflash = backend.load_dflash(folders / "dflash", target)
    for length in (WINDOW, 61):
        steps, fell_back = run(backend, target, dflash, prompt_of(length), layout=CacheLayout.FULL, chunk=7)
        assert (tokens_of(steps), fell_back) == (answers(kind, prompt_of(length)), {})


@pytest.mark.parametrize(
    ("kind", "adversary"), star(("gemma4", "another place each step"), list(CONFIGS), list(ADVERSARIES))
)
def test_adversarial_drafters_change_no_token(
    backend: Any, graphed: Any, answers: Any, kind: str, adversary: str
) -> None:
    target, prompt = graphed[kind], prompt_of(WINDOW + 3)
    answer = tuple(answers(kind, prompt))
    every_place = range(8) if kind == "gemma4" else (0, 3, 6)
    for place in every_place if "place" in adversary or "then" in adversary else (0,):
        model = ScriptedModel(answer, len(prompt), VOCAB, ADVERSARIES[adversary](place), capture=CAPTURE)
        steps, fell_back = run(backend, target, model, prompt)
        assert tokens_of(steps) == list(answer), f"wrong from {place}"
        assert fell_back == {}
        accepted = [step.accepted for step in steps if step.drafted]
        if adversary == "always wrong":
            assert set(accepted) == {0}
        if adversary == "always right":
            assert accepted == [step.drafted for step in steps if step.drafted]


@pytest.mark.ci
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in {"gemma4", "qwen3"} else pytest.mark.slow) for kind in CONFIGS]
)
def test_a_crop_to_every_row_of_a_block_leaves_what_the_growing_caches_leave(
    graphed: Any, targets: Any, kind: str
) -> None:
    eager = targets[kind]
    prompt, block = prompt_of(WINDOW + 9), Draft(tokens=tuple(prompt_of(7, seed=3)), count=7)
    for kept_rows in range(9):
        forwards = []
        for target in (graphed[kind], eager):
            sequence = target.open(CAPTURE, CacheLayout.NATIVE)
            for _ in sequence.prefill(prompt, 16):
                pass
            for _ in range(3):
                start = sequence.length
                verified = sequence.forward_block(11, block)
                sequence.crop(start + kept_rows)
            last = sequence.forward_block(13, Draft(tokens=(5, 6), count=2))
            forwards.append((verified, last))
            assert last.start == len(prompt) + 3 * kept_rows
        for graph_forward, other in zip(*forwards, strict=True):
            torch.testing.assert_close(graph_forward.logits, other.logits, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(graph_forward.features, other.features, atol=1e-4, rtol=1e-4)


def test_what_a_forward_returned_outlives_the_next_replays(graphed: Any) -> None:
    sequence = graphed["gemma4"].open(CAPTURE, CacheLayout.NATIVE)
    for _ in sequence.prefill(prompt_of(20), 512):
        pass
    first = sequence.forward_block(5, Draft(tokens=(6, 7), count=2))
    logits, features = first.logits.clone(), first.features.clone()
    for bonus in (8, 9):
        sequence.crop(sequence.length - 1)
        sequence.forward_block(bonus, Draft(tokens=(10, 11), count=2))
    assert torch.equal(first.logits, logits)
    assert torch.equal(first.features, features)


@pytest.mark.ci
def test_a_block_that_is_too_long_a_second_prompt_and_a_deep_crop_are_exact(graphed: Any, targets: Any) -> None:
    for kind, layout in (("gemma4", CacheLayout.NATIVE), ("qwen3", CacheLayout.NATIVE), ("gemma4", CacheLayout.FULL)):
        eager, results = targets[kind], []
        for target in (graphed[kind], eager):
            sequence = target.open(CAPTURE, layout)
            sequence.expect(64)
            for _ in sequence.prefill(prompt_of(20), 512):
                pass
            sequence.forward_block(5, Draft(tokens=(6, 7, 8), count=3))
            sequence.crop(22)
            sequence.forward_block(9, Draft(tokens=tuple(range(10, 20)), count=10))
            sequence.crop(25)
            sequence.forward_block(9, Draft(tokens=(10, 11), count=2))
            sequence.crop(26)
            for _ in sequence.prefill(prompt_of(9, seed=2), 4):
                pass
            if layout is CacheLayout.FULL or kind == "qwen3":
                for _ in range(4):
                    sequence.forward_block(5, Draft(tokens=(6,) * 7, count=7))
                sequence.crop(11)
            else:
                sequence.forward_block(5, Draft())
                with pytest.raises(CacheCropError, match="sliding"):
                    sequence.crop(20)
            last = sequence.forward_block(9, Draft(tokens=(4, 3), count=2))
            results.append((last, sequence.length, sequence.fallbacks()))
        (graph_forward, length, fell_back), (other, expected, none) = results
        assert (length, none) == (expected, {})
        assert fell_back.pop("a block of 11 rows; graphs are recorded up to 8") == 1
        assert not fell_back
        torch.testing.assert_close(graph_forward.logits, other.logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(graph_forward.features, other.features, atol=1e-4, rtol=1e-4)


@pytest.mark.ci
def test_a_small_draft_model_replays_and_changes_no_token(
    backend: Any, graphed: Any, answers: Any, tmp_path: Any
) -> None:
    small = backend.load_target(tiny_torch.write_target(tmp_path, "qwen3", seed=1))
    small.slots = slots()
    steps, fell_back = run(backend, graphed["gemma4"], DraftModel(small), prompt_of(WINDOW + 3), 4)
    assert (tokens_of(steps), fell_back) == (answers("gemma4", prompt_of(WINDOW + 3)), {})
    assert sum(step.drafter_forwards for step in steps) > 0


@pytest.mark.ci
def test_a_small_draft_model_is_recorded_before_the_first_token(backend: Any, graphed: Any, tmp_path: Any) -> None:
    """Recording takes longer than the rest of an answer, so it belongs to the prompt."""
    small = backend.load_target(tiny_torch.write_target(tmp_path, "qwen3", seed=1))
    small.slots = slots()
    target, drafter = graphed["gemma4"], DraftModel(small).open()
    parts = Parts(target.open((), CacheLayout.NATIVE), drafter, backend.greedy(target), FixedDepth(4), backend.clock)
    steps = speculative(parts, prompt_of(WINDOW + 3), Stopping(BUDGET))
    first = next(steps)
    recorded = {key: slot.recorded for key, slot in small.slots.lent.items()}
    assert [rows > 0 for rows in recorded.values()] == [True]
    assert first.drafter_forwards == 1
    for _ in steps:
        assert {key: slot.recorded for key, slot in small.slots.lent.items()} == recorded
    assert drafter.fallbacks() == {}


@pytest.mark.ci
def test_a_small_draft_model_takes_another_turn_in_before_its_first_token(
    backend: Any, folders: Any, graphed: Any, tmp_path: Any
) -> None:
    small = backend.load_target(tiny_torch.write_target(tmp_path, "qwen3", seed=1))
    small.slots = slots()
    target, drafter_model = graphed["qwen3"], DraftModel(small)
    accept = backend.greedy(target)
    engine = Engine(backend, target, drafter_model, accept, backend.native(target), folders / "qwen3")
    conversation, prompt = Conversation(engine, CacheLayout.NATIVE), prompt_of(20)
    for _ in range(2):
        sequence, drafter, cached = conversation.resume(prompt)
        stopping = Stopping(BUDGET)
        parts = Parts(sequence, drafter, accept, FixedDepth(4), backend.clock)
        steps = speculative(parts, prompt, stopping, 512, cached)
        assert next(steps).drafter_forwards == 1
        recorded = {key: slot.recorded for key, slot in small.slots.lent.items()}
        for _ in steps:
            assert {key: slot.recorded for key, slot in small.slots.lent.items()} == recorded
        conversation.keep((*prompt, *stopping.emitted))
        prompt = (*prompt, *stopping.emitted, *prompt_of(12, seed=5))
    assert cached > 20
    assert drafter.fallbacks() == {}


@pytest.mark.ci
@pytest.mark.parametrize("name", ["kakeya-tiny-gemma4", pytest.param("kakeya-tiny-qwen3", marks=pytest.mark.slow)])
def test_the_packaged_pairs_replay_what_they_decode(name: str) -> None:
    engine = open_engine(load_backend("torch", "cpu"), name, f"{name}-dflash", roots="")
    prompt = load_prompts("code-structured", Tokenizer(engine.folder), name).lasting(40).prompts[0].ids
    oracle = autoregressive(engine.target.open((), CacheLayout.NATIVE), engine.accept, prompt, Stopping(40))
    expected = tokens_of(list(oracle))
    target: Any = engine.target
    target.slots = Slots(Tape, BLOCK, smallest=256, room=0)
    for depth in (0, 7):
        settings = ArmSettings(CacheLayout.NATIVE, partial(FixedDepth, depth), 64)
        running = start(engine, SPECULATIVE, settings, prompt, Stopping(40))
        steps = list(running.steps)
        assert tokens_of(steps) == expected, f"depth {depth}"
        assert running.fallbacks() == {}
    assert max(step.accepted for step in steps) > 2


def test_what_a_recording_bakes_in_stays_as_it_was() -> None:
    state, buffer = {"added": 1}, torch.zeros(3)
    with torch.inference_mode():
        replay = Tape().record(lambda: (buffer + state["added"],))
    state["added"] = 5
    buffer.fill_(2)
    assert replay()[0].tolist() == [3, 3, 3]
    buffer.set_(torch.zeros(3))
    with pytest.raises(AssertionError, match="which is now"):
        replay()
