"""Recorded forwards of a hybrid: its states lie at fixed addresses, and any crop leaves what growing caches leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.backends.torch.graphs.slots import Slots
from engine.errors import CacheCropError
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes import tiny_families
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tape import Tape
from tests.fakes.tiny_families import VOCAB
from tests.integration.engine_torch.replaying import BLOCK, run, slots
from tests.support.decoding import ADVERSARIES, plain, prompt_of, tokens_of

CAPTURE = (0, 3)
PROMPT = tuple(token % VOCAB for token in prompt_of(30))
SOME = "qwen3_5_text"
KINDS = [SOME, pytest.param("qwen3_next", marks=pytest.mark.ci)]


@pytest.fixture(scope="module")
def pairs(backend: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A recording target and one that records nothing, by kind."""
    loaded: dict[str, tuple[Any, Any]] = {}

    def pair(kind: str) -> tuple[Any, Any]:
        if kind not in loaded:
            folder = tiny_families.write_family(tmp_path_factory.mktemp(kind), kind)
            loaded[kind] = backend.load_target(folder), backend.load_target(folder)
            loaded[kind][0].slots = slots()
        return loaded[kind]

    return pair


def opened(target: Any) -> Any:
    sequence = target.open(CAPTURE, CacheLayout.NATIVE)
    sequence.expect(60)
    list(sequence.prefill(PROMPT, 16))
    return sequence


def states(sequence: Any) -> list[torch.Tensor]:
    layers = sequence._held() if hasattr(sequence, "_held") else sequence.caches.held()
    return [side for state in layers.states.values() for side in state.state]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crop_to_every_row_leaves_the_state_of_growing_caches(pairs: Any, kind: str) -> None:
    block = Draft(tuple(range(20, 27)), 7)
    sequences = [opened(target) for target in pairs(kind)]
    for accepted in (8, 0, 3, 1, 7, 5, 2, 6, 4):
        forwards = []
        for sequence in sequences:
            start = sequence.length
            forwards.append(sequence.forward_block(11, block))
            sequence.crop(start + accepted)
        for mine, theirs in zip(*[(forward.logits, forward.features) for forward in forwards], strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
        for mine, theirs in zip(*map(states, sequences), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    assert sequences[0].fallbacks() == sequences[1].fallbacks()


@pytest.mark.parametrize(("kind", "adversary"), [(SOME, name) for name in ADVERSARIES])
def test_adversarial_drafters_change_no_token(backend: Any, pairs: Any, kind: str, adversary: str) -> None:
    graphed, eager = pairs(kind)
    answer = plain(backend, eager, PROMPT)
    for place in (0, 3, 6) if "place" in adversary or "then" in adversary else (0,):
        model = ScriptedModel(answer, len(PROMPT), VOCAB, ADVERSARIES[adversary](place), capture=CAPTURE)
        steps, fell_back = run(backend, graphed, model, PROMPT)
        assert tuple(tokens_of(steps)) == answer, f"wrong from {place}"
        assert all("fixed addresses" not in reason and "recorded" not in reason for reason in fell_back)


def test_a_state_leaves_its_slot_for_a_long_block_and_a_prompt_and_comes_back(pairs: Any) -> None:
    finals = []
    for target in pairs(SOME):
        sequence = opened(target)
        sequence.forward_block(5, Draft((6, 7, 8), 3))
        sequence.crop(32)
        sequence.forward_block(9, Draft(tuple(range(10, 20)), 10))
        sequence.crop(35)
        sequence.forward_block(9, Draft((10, 11), 2))
        list(sequence.prefill(PROMPT[:9], 4))
        sequence.forward_block(5, Draft((6,) * 7, 7))
        with pytest.raises(CacheCropError, match=r"states? "):
            sequence.crop(40)
        sequence.rewind(49)
        finals.append((sequence.forward_block(9, Draft((4, 3), 2)).logits, sequence.length))
    torch.testing.assert_close(finals[0][0], finals[1][0], atol=1e-4, rtol=1e-4)
    assert finals[0][1] == finals[1][1] == 52


@torch.inference_mode()
def test_what_a_rejected_row_read_never_reaches_the_state(pairs: Any) -> None:
    sequences = [opened(target) for target in pairs(SOME)]
    for accepted in (1, 2, 0):
        for sequence in sequences:
            start = sequence.length
            sequence.forward_block(5, Draft((6, 7, 8), 3))
            if sequence is sequences[0]:
                for state in sequence._slot.states.values():
                    tail = state.state[0].shape[-1]
                    state._read[0][:, :, tail + accepted :] = float("nan")
                    for part in state._read[1:]:
                        part[:, accepted:] = float("nan")
            sequence.crop(start + accepted)
        for mine, theirs in zip(*map(states, sequences), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_a_hybrid_records_its_blocks_once_and_nothing_in_an_answer(pairs: Any) -> None:
    target, tapes = pairs(SOME)[0], []
    before, target.slots = target.slots, Slots(lambda: tapes.append(Tape()) or tapes[-1], BLOCK, smallest=64, room=0)
    for _ in range(2):
        sequence = opened(target)
        for _ in range(3):
            start = sequence.length
            sequence.forward_block(5, Draft((6, 7), 2))
            sequence.crop(start + 1)
        del sequence
    target.slots = before
    # One for each number of rows, and one that takes states back; a block and its crop repeat two of them.
    assert [(tape.recordings, tape.replays) for tape in tapes] == [(BLOCK + 1, 12)]


def test_a_layout_that_goes_back_over_blocks_is_not_recorded_and_says_so(pairs: Any) -> None:
    sequence = pairs(SOME)[0].open((), CacheLayout.FULL)
    list(sequence.prefill(PROMPT, 16))
    sequence.forward_block(5, Draft())
    [(reason, count)] = sequence.fallbacks().items()
    assert reason.startswith("recurrent states that go back over several blocks are not kept at fixed addresses")
    assert count == 1
