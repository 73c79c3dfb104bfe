"""Speculative decoding emits what plain decoding emits, for every drafter, cache layout and model, in fp32."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.decoding.controller import ControlledDepth
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import StopReason
from tests.conformance.engine_decoding.conftest import Side
from tests.fakes.decoding_ahead import until_told
from tests.fakes.gates import EntropyGate
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tiny_torch import CONFIGS, MASK_ID, VOCAB, WINDOW
from tests.support.decoding import ADVERSARIES, BUDGET, drafted, prompt_of, tokens_of
from tests.support.pairwise import matrix, star

KINDS = list(CONFIGS)
LAYOUTS = [CacheLayout.NATIVE, CacheLayout.FULL]
LENGTHS = {"one token": 1, "before": 5, "at the window": WINDOW, "across": WINDOW + 3, "far past": 61}


@pytest.mark.parametrize(("kind", "length"), star(("gemma4", "across"), KINDS, LENGTHS))
def test_plain_decoding_equals_the_librarys_own(side: Side, kind: str, length: int) -> None:
    native = side.backend.native(side.targets[kind])
    answer = side.answer(kind, prompt_of(length), 26)
    assert len(set(answer)) > 3
    for chunk in (512, 7):
        assert tokens_of(native.decode(prompt_of(length), Stopping(26), chunk)) == answer
    assert native.measured_bytes() > 0


@pytest.mark.parametrize(
    ("kind", "layout", "length"), star(("gemma4", str(CacheLayout.NATIVE), "across"), KINDS, LAYOUTS, LENGTHS)
)
def test_every_real_drafter_is_lossless(side: Side, kind: str, layout: CacheLayout, length: int) -> None:
    prompt = prompt_of(length)
    dflash, sliding = side.dflash(kind), side.dflash(kind, "dflash-sliding")
    runs = [(dflash, 7, 512), (sliding, 2, 5), (NgramModel(min_tokens=1), 5, 7), (NoDrafter(), 4, 5), (dflash, 0, 5)]
    for drafter, depth, chunk in runs:
        steps = drafted(side.backend, side.targets[kind], drafter, prompt, Stopping(BUDGET), depth, layout, chunk)
        assert tokens_of(steps) == side.answer(kind, prompt), f"{drafter.info.name} depth {depth} chunk {chunk}"
        if drafter is dflash and depth:
            assert sum(step.drafter_forwards for step in steps) > 0


@pytest.mark.parametrize(("kind", "adversary", "layout"), matrix(KINDS, list(ADVERSARIES), LAYOUTS))
def test_adversarial_drafters_change_no_token(side: Side, kind: str, adversary: str, layout: CacheLayout) -> None:
    prompt = prompt_of(WINDOW + 3)
    answer = side.answer(kind, prompt)
    places = range(8) if kind == "gemma4" and layout is CacheLayout.NATIVE else (1, 6)
    for place in places if "place" in adversary or "then" in adversary else (0,):
        model = ScriptedModel(tuple(answer), len(prompt), VOCAB, ADVERSARIES[adversary](place), capture=(0, 3))
        steps = drafted(side.backend, side.targets[kind], model, prompt, Stopping(BUDGET), 7, layout)
        assert tokens_of(steps) == answer, f"wrong from {place}"
        accepted = [step.accepted for step in steps if step.drafted]
        if adversary == "always wrong":
            assert set(accepted) == {0}
        if adversary == "always right":
            assert accepted == [step.drafted for step in steps if step.drafted]
        if adversary == "right then wrong":
            assert set(accepted[:-1]) == {min(place, 7)}


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["gemma4", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_a_stop_at_every_position_ends_both_ways_of_decoding_alike(side: Side, kind: str) -> None:
    backend, target, prompt = side.backend, side.targets[kind], prompt_of(WINDOW + 3)
    answer = side.answer(kind, prompt)
    right = ScriptedModel(tuple(answer), len(prompt), VOCAB, lambda step, index: False)
    for place, token in enumerate(answer):
        steps = drafted(backend, target, right, prompt, Stopping(BUDGET, frozenset({token})))
        assert tokens_of(steps) == answer[: answer.index(token) + 1]
        assert steps[-1].stop is StopReason.EOS
        steps = drafted(backend, target, right, prompt, Stopping(place + 1))
        assert tokens_of(steps) == answer[: place + 1]
        assert steps[-1].stop is StopReason.BUDGET
        assert tokens_of(backend.native(target).decode(prompt, Stopping(place + 1), 512)) == answer[: place + 1]


def test_a_mask_id_that_is_a_stop_id_stops_only_when_the_target_emits_it(side: Side) -> None:
    prompt = prompt_of(WINDOW + 3)
    answer = side.answer("gemma4", prompt)
    assert MASK_ID not in answer
    stopping = Stopping(BUDGET, frozenset({MASK_ID}))
    steps = drafted(side.backend, side.targets["gemma4"], side.dflash("gemma4"), prompt, stopping)
    assert tokens_of(steps) == answer
    assert steps[-1].stop is StopReason.BUDGET


def test_cancelling_between_steps_ends_the_sequence(side: Side) -> None:
    prompt = prompt_of(9)
    answer = side.answer("qwen3", prompt)
    for drafter in (NoDrafter(), ScriptedModel(tuple(answer), len(prompt), VOCAB, lambda step, index: index > 1)):
        stopping = Stopping(BUDGET)
        stopping.cancelled = lambda stopping=stopping: len(stopping.emitted) >= 7
        steps = drafted(side.backend, side.targets["qwen3"], drafter, prompt, stopping, depth=3)
        assert steps[-1].stop is StopReason.CANCELLED
        assert 7 <= len(tokens_of(steps)) < 7 + 4
        assert tokens_of(steps) == answer[: len(tokens_of(steps))]


def test_the_controller_changes_depths_and_no_token(side: Side) -> None:
    prompt = prompt_of(20)
    answer = side.answer("gemma4", prompt, 120)
    right = ScriptedModel(tuple(answer), len(prompt), VOCAB, lambda step, index: (step // 5) % 2 == 1, capture=(0, 2))
    policy = ControlledDepth(7)
    # The account must not decide this test: whatever the machine's speed, every probe is affordable.
    policy.decoded_s = 1e6
    steps = drafted(side.backend, side.targets["gemma4"], right, prompt, Stopping(120), policy)
    assert tokens_of(steps) == answer
    assert {0, 3} <= {step.drafted for step in steps}


def test_the_targets_uncertainty_gates_drafting_and_changes_no_token(side: Side) -> None:
    prompt = prompt_of(20)
    for limit in (0.0, 1e9):
        gate = EntropyGate(3, limit)
        steps = drafted(side.backend, side.targets["gemma4"], side.dflash("gemma4"), prompt, Stopping(BUDGET), gate)
        assert tokens_of(steps) == side.answer("gemma4", prompt)
        assert any(step.drafted for step in steps[2:]) == (limit > 0.0)


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_ahead_may_stop_anywhere_and_go_on_exactly(
    side: Side, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, prompt = side.targets[kind], prompt_of(WINDOW + 3)
    answer = side.answer(kind, prompt)
    for _ in ways_ahead(side, target, monkeypatch):
        for taken in (1, 2, 5):
            sequence = target.open((), CacheLayout.NATIVE)
            *_, last = sequence.prefill(prompt, 512)
            bonus = side.backend.greedy(target).first(last).bonus
            for count, (outcome, forward) in enumerate(sequence.decode_ahead(bonus, 20), start=1):
                bonus = outcome.bonus
                if count == taken:
                    sequence.crop(forward.start + 1)
                    break
            assert bonus == answer[taken]
            rest = [outcome.bonus for outcome, _ in sequence.decode_ahead(bonus, 10)]
            assert rest == answer[taken + 1 : taken + 11]
            assert sequence.length == len(prompt) + taken + 10


def test_the_forward_that_is_under_way_is_the_last_once_decoding_ahead_is_to_end(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, prompt = side.targets["gemma4"], prompt_of(WINDOW + 3)
    answer = side.answer("gemma4", prompt)
    for ahead in ways_ahead(side, target, monkeypatch):
        for taken in (1, 2, 5):
            sequence = target.open((), CacheLayout.NATIVE)
            *_, last = sequence.prefill(prompt, 512)
            tokens = until_told(sequence, side.backend.greedy(target).first(last).bonus, taken)
            assert tokens == answer[: taken + 1 + ahead]
            assert sequence.length == len(prompt) + taken + ahead
            rest = [outcome.bonus for outcome, _ in sequence.decode_ahead(tokens[-1], 5)]
            assert rest == answer[len(tokens) : len(tokens) + 5]


def ways_ahead(side: Side, target: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Yield whether a forward starts before the token of the one before is read, with a target that does so.

    MLX always does; torch does where the device computes by itself.
    """
    if side.backend.name == "mlx":
        yield True
        return
    for ahead in (False, True):
        monkeypatch.setattr(target, "ahead", ahead)
        yield ahead


@pytest.mark.ci
def test_two_models_on_two_threads_decode_as_they_do_alone(side: Side) -> None:
    alone: dict[tuple[str, int], list[int]] = {}
    in_threads: dict[tuple[str, int], list[int]] = {}

    def run(kind: str, seed: int, into: dict[tuple[str, int], list[int]]) -> None:
        steps = drafted(side.backend, side.targets[kind], side.dflash(kind), prompt_of(40, seed), Stopping(BUDGET))
        into[kind, seed] = tokens_of(steps)

    work = [(kind, seed) for kind in ("gemma4", "qwen3") for seed in range(2)]
    for kind, seed in work:
        run(kind, seed, alone)
    threads = [threading.Thread(target=run, args=(kind, seed, in_threads)) for kind, seed in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_threads == alone
