"""Replayed forwards decode what plain ones decode: the battery of the growing caches, on a recorder without a card."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from engine.backends.torch.graphs import NoSlot, NotRecordableError, Outputs, Run, Slots
from engine.backends.torch.trial import refusal
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.decoding.stopping import Stopping
from engine.drafters.draft_model import DraftModel
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.errors import CacheCropError
from engine.evaluation.arms import SPECULATIVE, ArmSettings, start
from engine.evaluation.selection import load_prompts
from engine.loading import Engine, load_backend, open_engine
from engine.tokenizer import Tokenizer
from engine.types import CacheLayout, Draft, Step
from tests.fakes import tiny_torch
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tape import Tape
from tests.fakes.tiny_torch import CONFIGS, VOCAB, WINDOW
from tests.integration.engine_torch.test_lossless import ADVERSARIES, BUDGET, plain, prompt_of, tokens_of

BLOCK = 8
LENGTHS = {"one token": 1, "at the window": WINDOW, "across": WINDOW + 3, "far past": 61}
CAPTURE = (0, 2, 4)


def slots(block_rows: int = BLOCK, smallest: int = 64) -> Slots:
    return Slots(Tape, block_rows, smallest=smallest, room=0)


@pytest.fixture(scope="module")
def answers(backend: Any, folders: Any) -> Callable[[str, tuple[int, ...]], list[int]]:
    """The oracle on targets that record nothing, each prompt decoded once."""
    loaded: dict[str, Any] = {}
    known: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def answer(kind: str, prompt: tuple[int, ...]) -> list[int]:
        if kind not in loaded:
            loaded[kind] = backend.load_target(folders / kind)
        if (kind, prompt) not in known:
            known[kind, prompt] = list(plain(backend, loaded[kind], prompt))
        return known[kind, prompt]

    return answer


@pytest.fixture(scope="module")
def graphed(backend: Any, folders: Any) -> dict[str, Any]:
    loaded = {kind: backend.load_target(folders / kind) for kind in CONFIGS}
    for target in loaded.values():
        target.slots = slots()
    return loaded


def run(
    backend: Any, target: Any, drafter: Any, prompt: tuple[int, ...], depth: int = 7, **options: Any
) -> tuple[list[Step], dict[str, int]]:
    layout, chunk = options.get("layout", CacheLayout.NATIVE), options.get("chunk", 512)
    sequence = target.open(drafter.capture, layout)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
    steps = list(speculative(parts, prompt, Stopping(BUDGET), chunk))
    assert sequence.length == steps[-1].position
    return steps, sequence.fallbacks()


@pytest.mark.parametrize("ahead", [False, True], ids=["read first", "queue first"])
@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_network_drafts_at_every_depth_and_changes_no_token(
    backend: Any, folders: Any, graphed: Any, answers: Any, kind: str, length: int, ahead: bool
) -> None:
    target, prompt = graphed[kind], prompt_of(length)
    target.ahead = ahead
    dflash = backend.load_dflash(folders / "dflash", target)
    for depth in range(8) if length == WINDOW + 3 and not ahead else (0, 3, 7):
        steps, fell_back = run(backend, target, dflash, prompt, depth, chunk=(512, 5)[depth % 2])
        assert tokens_of(steps) == answers(kind, prompt), f"depth {depth}"
        assert fell_back == {}, f"depth {depth}"
        assert depth == 0 or sum(step.drafter_forwards for step in steps) > 0


@pytest.mark.parametrize("kind", ["gemma4", "gemma4-shared"])
def test_every_row_on_sliding_layers_decodes_the_same(
    backend: Any, folders: Any, graphed: Any, answers: Any, kind: str
) -> None:
    target = graphed[kind]
    dflash = backend.load_dflash(folders / "dflash", target)
    for length in LENGTHS.values():
        steps, fell_back = run(backend, target, dflash, prompt_of(length), layout=CacheLayout.FULL, chunk=7)
        assert (tokens_of(steps), fell_back) == (answers(kind, prompt_of(length)), {})


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("kind", CONFIGS)
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


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_crop_to_every_row_of_a_block_leaves_what_the_growing_caches_leave(
    backend: Any, folders: Any, graphed: Any, kind: str
) -> None:
    eager = backend.load_target(folders / kind)
    prompt, block = prompt_of(WINDOW + 9), Draft(tokens=tuple(prompt_of(7, seed=3)), count=7)
    for kept in range(9):
        found = []
        for target in (graphed[kind], eager):
            sequence = target.open(CAPTURE, CacheLayout.NATIVE)
            for _ in sequence.prefill(prompt, 16):
                pass
            for _ in range(3):
                start = sequence.length
                verified = sequence.forward_block(11, block)
                sequence.crop(start + kept)
            last = sequence.forward_block(13, Draft(tokens=(5, 6), count=2))
            found.append((verified, last))
            assert last.start == len(prompt) + 3 * kept
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one.logits, other.logits, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(one.features, other.features, atol=1e-4, rtol=1e-4)


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


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_outgrowing_a_slot_is_counted_and_changes_no_token(backend: Any, folders: Any, answers: Any, kind: str) -> None:
    target = backend.load_target(folders / kind)
    target.slots = slots(smallest=16)
    dflash, prompt = backend.load_dflash(folders / "dflash", target), prompt_of(WINDOW)
    for _ in range(2):
        steps, fell_back = run(backend, target, dflash, prompt, 3)
        assert tokens_of(steps) == answers(kind, prompt)
        assert fell_back == {"the cache outgrew its slot and moved to one of 64 positions": 1}


def test_a_slot_is_recorded_once_and_lent_again(backend: Any, folders: Any, answers: Any) -> None:
    target, tapes = backend.load_target(folders / "qwen3"), []
    target.slots = Slots(lambda: tapes.append(Tape()) or tapes[-1], BLOCK, smallest=64, room=0)
    dflash = backend.load_dflash(folders / "dflash", target)
    for seed in range(3):
        steps, fell_back = run(backend, target, dflash, prompt_of(20, seed), 3)
        assert (tokens_of(steps), fell_back) == (answers("qwen3", prompt_of(20, seed)), {})
    assert (len(tapes), tapes[0].recordings) == (1, BLOCK)
    assert tapes[0].replays > 10


def test_a_second_sequence_runs_without_recordings_and_says_why(backend: Any, graphed: Any, answers: Any) -> None:
    target = graphed["gemma4"]
    target.ahead = False
    prompts, sequences, bonus = (prompt_of(15), prompt_of(16, seed=5)), [], []
    for prompt in prompts:
        sequence = target.open(CAPTURE, CacheLayout.NATIVE)
        *_, last = sequence.prefill(prompt, 512)
        sequences.append(sequence)
        bonus.append(int(last.logits[-1].argmax()))
    found: list[list[int]] = [[bonus[0]], [bonus[1]]]
    for _ in range(BUDGET - 1):
        for sequence, tokens in zip(sequences, found, strict=True):
            [(outcome, _)] = sequence.decode_ahead(tokens[-1], 1)
            tokens.append(outcome.bonus)
    assert found == [answers("gemma4", prompt) for prompt in prompts]
    assert sequences[0].fallbacks() == {}
    assert sequences[1].fallbacks() == {"another sequence holds the static caches": BUDGET - 1}
    del sequences[0], sequence
    gc.collect()
    # The first is gone: the second takes its slot with the rows it has.
    [(outcome, _)] = sequences[0].decode_ahead(found[1][-1], 1)
    assert sequences[0].fallbacks() == {"another sequence holds the static caches": BUDGET - 1}


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


@pytest.mark.parametrize("text", ["affine8/8", "sink2+window9"])
def test_a_lossy_layout_is_decoded_without_recordings_and_says_why(backend: Any, graphed: Any, text: str) -> None:
    target, prompt, layout = graphed["gemma4"], prompt_of(30), CacheLayout.parse(text)
    oracle = list(autoregressive(target.open((), layout), backend.greedy(target), prompt, Stopping(BUDGET)))
    steps, fell_back = run(backend, target, NgramModel(min_tokens=1), prompt, 5, layout=layout)
    assert tokens_of(steps) == tokens_of(oracle)
    assert fell_back == {
        f"cache layout {text} is not kept at fixed addresses": sum(step.target_forwards for step in steps[1:])
    }


def test_a_block_that_is_too_long_a_second_prompt_and_a_deep_crop_are_exact(
    backend: Any, folders: Any, graphed: Any
) -> None:
    for kind, layout in (("gemma4", CacheLayout.NATIVE), ("qwen3", CacheLayout.NATIVE), ("gemma4", CacheLayout.FULL)):
        eager, found = backend.load_target(folders / kind), []
        for target in (graphed[kind], eager):
            sequence = target.open(CAPTURE, layout)
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
            found.append((last, sequence.length, sequence.fallbacks()))
        (one, length, fell_back), (other, expected, none) = found
        assert (length, none) == (expected, {})
        assert fell_back.pop("a block of 11 rows; graphs are recorded up to 8") == 1
        assert not fell_back or fell_back == {"the cache outgrew its slot and moved to one of 128 positions": 1}
        torch.testing.assert_close(one.logits, other.logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(one.features, other.features, atol=1e-4, rtol=1e-4)


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


def test_a_small_draft_model_replays_and_changes_no_token(
    backend: Any, graphed: Any, answers: Any, tmp_path: Any
) -> None:
    small = backend.load_target(tiny_torch.write_target(tmp_path, "qwen3", seed=1))
    small.slots = slots()
    for length in (WINDOW + 3, 61):
        steps, fell_back = run(backend, graphed["gemma4"], DraftModel(small), prompt_of(length), 4)
        assert (tokens_of(steps), fell_back) == (answers("gemma4", prompt_of(length)), {})
        assert sum(step.drafter_forwards for step in steps) > 0


def test_two_models_and_two_sequences_of_each_on_threads_decode_as_they_do_alone(
    backend: Any, folders: Any, graphed: Any, answers: Any
) -> None:
    # Prompt, budget and a block fit the smallest slot: only a neighbour can keep a sequence out of one.
    assert 30 + BUDGET + BLOCK <= 64
    found: dict[tuple[str, int], tuple[list[int], dict[str, int]]] = {}
    work = [(kind, seed) for kind in ("gemma4", "qwen3") for seed in range(2)]
    expected = {(kind, seed): answers(kind, prompt_of(30, seed)) for kind, seed in work}

    def decode(kind: str, seed: int) -> None:
        dflash = backend.load_dflash(folders / "dflash", graphed[kind])
        steps, fell_back = run(backend, graphed[kind], dflash, prompt_of(30, seed))
        found[kind, seed] = tokens_of(steps), fell_back

    threads = [threading.Thread(target=decode, args=item) for item in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: tokens for key, (tokens, _) in found.items()} == expected
    assert {reason for _, reasons in found.values() for reason in reasons} <= {
        "another sequence holds the static caches"
    }


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


@pytest.mark.parametrize("name", ["kakeya-tiny-gemma4", "kakeya-tiny-qwen3"])
def test_the_packaged_pairs_replay_what_they_decode(name: str) -> None:
    engine = open_engine(load_backend("torch", "cpu"), name, f"{name}-dflash", roots="")
    prompt = load_prompts("code-structured", Tokenizer(engine.folder), name).lasting(60).prompts[0].ids
    oracle = autoregressive(engine.target.open((), CacheLayout.NATIVE), engine.accept, prompt, Stopping(60))
    expected = tokens_of(list(oracle))
    target: Any = engine.target
    target.slots = Slots(Tape, BLOCK, smallest=256, room=0)
    for depth in (0, 3, 7):
        settings = ArmSettings(CacheLayout.NATIVE, partial(FixedDepth, depth), 64)
        running = start(engine, SPECULATIVE, settings, prompt, Stopping(60))
        steps = list(running.steps)
        assert tokens_of(steps) == expected, f"depth {depth}"
        assert set(running.fallbacks()) <= {"the cache outgrew its slot and moved to one of 512 positions"}
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


class TrialClock:
    """A millisecond for each reading, and what a recorder adds."""

    eager = True

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        self.ns += 1_000_000
        return self.ns

    def host_ns(self) -> int:
        return self.now_ns()


class Altered(Tape):
    """Repeats what was recorded, taking ``extra_ns`` longer and adding ``shift`` to every output."""

    def __init__(self, clock: TrialClock, extra_ns: int, shift: float) -> None:
        super().__init__()
        self._clock, self._extra_ns, self._shift = clock, extra_ns, shift

    def record(self, run: Run) -> Run:
        repeated = super().record(run)

        def altered() -> Outputs:
            self._clock.ns += self._extra_ns
            return tuple(output + self._shift for output in repeated())

        return altered


@pytest.mark.parametrize(
    ("extra_ns", "shift", "must_pay", "said"),
    [
        (-500_000, 0.0, True, None),
        (500_000, 0.0, False, None),
        (500_000, 0.0, True, r"1\.50 times as long"),
        (-500_000, 0.1, False, "1 rows differ from plain ones"),
        (-500_000, float("nan"), True, "differ from plain ones by nan"),
    ],
)
def test_a_trial_refuses_recordings_that_differ_or_do_not_pay(
    backend: Any, folders: Any, extra_ns: int, shift: float, must_pay: bool, said: str | None
) -> None:
    clock = TrialClock()
    target = backend.load_target(folders / next(iter(CONFIGS)))
    target.slots = Slots(partial(Altered, clock, extra_ns, shift), BLOCK, smallest=64, room=0)
    found = refusal(target, clock, BLOCK, must_pay)
    assert found is None if said is None else found is not None and re.search(said, found)
    target.slots.refused = found
    steps, reasons = run(backend, target, NoDrafter(), prompt_of(12))
    assert tokens_of(steps) == list(plain(backend, backend.load_target(folders / next(iter(CONFIGS))), prompt_of(12)))
    assert list(reasons) == ([] if found is None else [found])


class Refusing(Tape):
    """Records nothing."""

    def record(self, run: Run) -> Run:
        raise NotRecordableError("the host is needed")


def test_a_trial_keeps_why_nothing_can_be_recorded(backend: Any, folders: Any) -> None:
    target = backend.load_target(folders / next(iter(CONFIGS)))
    target.slots = Slots(Refusing, BLOCK, smallest=64, room=0)
    assert refusal(target, TrialClock(), BLOCK, must_pay=True) == "the forward cannot be recorded: the host is needed"
