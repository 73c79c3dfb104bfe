"""Who holds a slot, what a sequence without one does, and that it says why."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from engine.backends.torch.graphs.slots import NoSlot, Slots
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.loading import Engine
from engine.measurement.arms import SPECULATIVE, ArmSettings, start
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes.tape import Tape
from tests.fakes.tiny_torch import WINDOW
from tests.integration.engine_torch.replaying import BLOCK, CAPTURE, run, slots
from tests.support.decoding import BUDGET, prompt_of, tokens_of


def test_nothing_is_recorded_inside_an_answer_however_long(backend: Any, folders: Any) -> None:
    target, tapes = backend.load_target(folders / "qwen3"), []
    target.slots = Slots(lambda: tapes.append(Tape()) or tapes[-1], BLOCK, smallest=16, room=0)
    for budget, capacity in ((60, 128), (200, 256)):
        sequence = target.open((), CacheLayout.NATIVE)
        parts = Parts(sequence, NgramModel().open(), backend.greedy(target), FixedDepth(3), backend.clock)
        steps = speculative(parts, prompt_of(20), Stopping(budget))
        next(steps)
        recorded = [tape.recordings for tape in tapes]
        assert len(list(steps)) > 1
        assert [tape.recordings for tape in tapes] == recorded
        assert sequence.fallbacks() == {}
        # The smaller slot made room for the larger one.
        assert [key[2] for key in target.slots.lent] == [capacity]
        del sequence, parts, steps
        gc.collect()


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["gemma4", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_outgrowing_a_slot_is_counted_and_changes_no_token(backend: Any, folders: Any, answers: Any, kind: str) -> None:
    target = backend.load_target(folders / kind)
    target.slots, prompt = slots(smallest=16), prompt_of(WINDOW)
    sequence = target.open((), CacheLayout.NATIVE)
    steps = autoregressive(sequence, backend.greedy(target), prompt, Stopping(BUDGET))
    assert tokens_of(steps) == answers(kind, prompt)
    [(reason, count)] = sequence.fallbacks().items()
    assert reason == "no slot of 64 positions was recorded before the answer"
    assert 0 < count < BUDGET


def test_a_slot_is_recorded_once_and_lent_again(backend: Any, folders: Any, answers: Any) -> None:
    target, tapes = backend.load_target(folders / "qwen3"), []
    target.slots = Slots(lambda: tapes.append(Tape()) or tapes[-1], BLOCK, smallest=64, room=0)
    dflash = backend.load_dflash(folders / "dflash", target)
    for seed in range(3):
        steps, fell_back = run(backend, target, dflash, prompt_of(20, seed), 3)
        assert (tokens_of(steps), fell_back) == (answers("qwen3", prompt_of(20, seed)), {})
    assert (len(tapes), tapes[0].recordings) == (1, BLOCK)
    assert tapes[0].replays > 10


@pytest.mark.ci
def test_a_second_sequence_runs_without_recordings_and_says_why(backend: Any, graphed: Any, answers: Any) -> None:
    target = graphed["gemma4"]
    target.ahead = False
    prompts, sequences, bonus = (prompt_of(15), prompt_of(16, seed=5)), [], []
    for prompt in prompts:
        sequence = target.open(CAPTURE, CacheLayout.NATIVE)
        *_, last = sequence.prefill(prompt, 512)
        sequences.append(sequence)
        bonus.append(int(last.logits[-1].argmax()))
    token_lists: list[list[int]] = [[bonus[0]], [bonus[1]]]
    for _ in range(BUDGET - 1):
        for sequence, tokens in zip(sequences, token_lists, strict=True):
            [(outcome, _)] = sequence.decode_ahead(tokens[-1], 1)
            tokens.append(outcome.bonus)
    assert token_lists == [answers("gemma4", prompt) for prompt in prompts]
    assert sequences[0].fallbacks() == {}
    assert sequences[1].fallbacks() == {"another sequence holds the static caches": BUDGET - 1}
    del sequences[0], sequence
    gc.collect()
    # The first is gone: the second takes its slot with the rows it has.
    [(outcome, _)] = sequences[0].decode_ahead(token_lists[1][-1], 1)
    assert sequences[0].fallbacks() == {"another sequence holds the static caches": BUDGET - 1}


@pytest.mark.ci
def test_a_sequence_that_gave_its_slot_back_cannot_free_anothers(graphed: Any) -> None:
    target, prompt = graphed["gemma4"], prompt_of(15)
    first = target.open(CAPTURE, CacheLayout.NATIVE)
    list(first.prefill(prompt, 512))
    first.forward_block(5, Draft(tokens=(6,) * 11, count=11))
    second = target.open(CAPTURE, CacheLayout.NATIVE)
    list(second.prefill(prompt, 512))
    del first
    gc.collect()
    third = target.open(CAPTURE, CacheLayout.NATIVE)
    list(third.prefill(prompt, 512))
    for sequence in (second, third):
        sequence.forward_block(5, Draft())
    assert second.fallbacks() == {}
    assert third.fallbacks() == {"another sequence holds the static caches": 1}


@pytest.mark.ci
@pytest.mark.parametrize("text", ["affine8/8", "sink2+window9"])
def test_a_lossy_layout_is_decoded_without_recordings_and_says_why(backend: Any, graphed: Any, text: str) -> None:
    target, prompt, layout = graphed["gemma4"], prompt_of(30), CacheLayout.parse(text)
    oracle = list(autoregressive(target.open((), layout), backend.greedy(target), prompt, Stopping(BUDGET)))
    steps, fell_back = run(backend, target, NgramModel(min_tokens=1), prompt, 5, layout=layout)
    assert tokens_of(steps) == tokens_of(oracle)
    assert fell_back == {
        f"cache layout {text} is not kept at fixed addresses": sum(step.target_forwards for step in steps[1:])
    }


@pytest.mark.ci
def test_a_forward_that_needs_the_host_falls_back_for_good_and_says_why(
    backend: Any, folders: Any, answers: Any
) -> None:
    target = backend.load_target(folders / "gemma4-moe")
    # This implementation asks the host which experts were hit.
    target.module.set_experts_implementation("eager")
    target.slots, prompt = slots(), prompt_of(15)
    dflash = backend.load_dflash(folders / "dflash", target)
    for _ in range(2):
        steps, fell_back = run(backend, target, dflash, prompt, 3)
        assert tokens_of(steps) == answers("gemma4-moe", prompt)
        [(reason, count)] = fell_back.items()
        assert reason.startswith("the forward cannot be recorded: nonzero")
        assert count == sum(step.target_forwards for step in steps[1:])
    assert isinstance(target.slots.take(target.family, ((), CacheLayout.NATIVE, 64), []), NoSlot)


@pytest.mark.ci
def test_two_models_and_two_sequences_of_each_on_threads_decode_as_they_do_alone(
    backend: Any, folders: Any, graphed: Any, answers: Any
) -> None:
    # Prompt, budget and a block fit the smallest slot: only a neighbour can keep a sequence out of one.
    assert 30 + BUDGET + BLOCK <= 64
    in_threads: dict[tuple[str, int], tuple[list[int], dict[str, int]]] = {}
    work = [(kind, seed) for kind in ("gemma4", "qwen3") for seed in range(2)]
    expected = {(kind, seed): answers(kind, prompt_of(30, seed)) for kind, seed in work}

    def decode(kind: str, seed: int) -> None:
        dflash = backend.load_dflash(folders / "dflash", graphed[kind])
        steps, fell_back = run(backend, graphed[kind], dflash, prompt_of(30, seed))
        in_threads[kind, seed] = tokens_of(steps), fell_back

    threads = [threading.Thread(target=decode, args=item) for item in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: tokens for key, (tokens, _) in in_threads.items()} == expected
    assert {reason for _, reasons in in_threads.values() for reason in reasons} <= {
        "another sequence holds the static caches"
    }


@pytest.mark.ci
def test_a_generation_of_a_workload_carries_the_reasons_to_its_report(backend: Any, folders: Any, graphed: Any) -> None:
    target = graphed["gemma4"]
    engine = Engine(backend, target, NoDrafter(), backend.greedy(target), backend.native(target), folders / "gemma4")
    holder = target.open((), CacheLayout.NATIVE)
    list(holder.prefill(prompt_of(20), 512))
    settings = ArmSettings(CacheLayout.NATIVE, lambda: FixedDepth(0), 512)
    running = start(engine, SPECULATIVE, settings, prompt_of(20), Stopping(6))
    assert len(tokens_of(list(running.steps))) == 6
    assert running.fallbacks() == {"another sequence holds the static caches": 5}
    assert holder.measured_bytes() > 0


@pytest.mark.ci
def test_where_a_slot_does_not_fit_beside_the_caches_an_answer_goes_on_without(
    backend: Any, folders: Any, answers: Any
) -> None:
    target, prompt, freed = backend.load_target(folders / "qwen3"), prompt_of(20), threading.Event()

    def recorder() -> Tape:
        if freed.is_set():
            return Tape()
        raise torch.OutOfMemoryError("CUDA out of memory")

    target.slots = Slots(recorder, BLOCK, smallest=64, room=0)
    steps, fell_back = run(backend, target, NgramModel(), prompt, 3)
    assert tokens_of(steps) == answers("qwen3", prompt)
    assert fell_back == {"no memory for static caches of 64 positions": sum(step.target_forwards for step in steps[1:])}
    # It is asked for again with the next answer, since memory comes and goes.
    freed.set()
    assert run(backend, target, NgramModel(), prompt, 3)[1] == {}
