"""Speculative decoding on MLX emits what plain decoding emits, for every drafter, cache layout and model, in fp32."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from engine.decoding.autoregressive import autoregressive
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.gates import EntropyGate
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward, Step, StopReason
from tests.fakes.decoding_ahead import until_told
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tiny_mlx import CONFIGS, VOCAB, WINDOW, write_dflash

ROUNDING = 1e-5  # of the largest value: another order of fp32 sums, as another chunk or BLAS brings


def close(got: mx.array, expected: mx.array) -> bool:
    """Return whether two fp32 arrays agree up to the order of their sums."""
    scale = max(1.0, mx.max(mx.abs(expected)).item())
    return bool(mx.max(mx.abs(got - expected)).item() <= ROUNDING * scale)


KINDS = [*CONFIGS, "wrapped"]
LAYOUTS = [CacheLayout.NATIVE, CacheLayout.FULL]
LENGTHS = {"one token": 1, "before": 5, "at the window": WINDOW, "across": WINDOW + 3, "far past": 61}
BUDGET = 16
# Every length on every model is a slow test; the quick ones cross the wrap on all and see all lengths on one.
QUICK = {("gemma4", length) for length in LENGTHS} | {(kind, "across") for kind in CONFIGS}
MATRIX = [
    pytest.param(kind, length, id=f"{kind}-{name}", marks=() if (kind, name) in QUICK else pytest.mark.slow)
    for kind in KINDS
    for name, length in LENGTHS.items()
]


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random.Random(seed).randrange(5, VOCAB) for _ in range(length))


def tokens_of(steps: Any) -> list[int]:
    return [token for step in steps for token in step.tokens]


def plain(backend: Any, target: Any, prompt: tuple[int, ...], budget: int = BUDGET) -> list[int]:
    """The oracle: every row kept, the whole prompt in one chunk, one token at a time."""
    sequence = target.open((), CacheLayout.FULL)
    return tokens_of(autoregressive(sequence, backend.greedy(target), prompt, Stopping(budget), 512))


@functools.cache
def known(backend: Any, target: Any, prompt: tuple[int, ...], budget: int = BUDGET) -> tuple[int, ...]:
    """What `plain` decodes, decoded once for all tests that compare with it; that it is right has a test of its own."""
    return tuple(plain(backend, target, prompt, budget))


def drafted(
    backend: Any,
    target: Any,
    drafter: Any,
    prompt: tuple[int, ...],
    stopping: Stopping,
    depth: Any = 7,
    layout: CacheLayout = CacheLayout.NATIVE,
    chunk: int = 512,
) -> list[Step]:
    sequence = target.open(drafter.capture, layout)
    policy = FixedDepth(depth) if isinstance(depth, int) else depth
    parts = Parts(sequence, drafter.open(), backend.greedy(target), policy, backend.clock)
    steps = list(speculative(parts, prompt, stopping, chunk))
    assert sequence.length == steps[-1].position
    return steps


@pytest.mark.parametrize(("kind", "length"), MATRIX)
def test_plain_decoding_equals_mlx_lm_generate_step(backend: Any, targets: Any, kind: str, length: int) -> None:
    target, prompt = targets[kind], prompt_of(length)
    expected = plain(backend, target, prompt)
    native = backend.native(target)
    for chunk in (512, 7):
        assert tokens_of(native.decode(prompt, Stopping(BUDGET), chunk)) == expected
    assert native.measured_bytes() > 0


# Quick: the native layout meets every model and all lengths; every row is kept where rows slide, shared or not.
WHOLE = {("gemma4", "across"), ("gemma4-shared", "across"), ("gemma4", "far past")}
REAL = [
    pytest.param(
        kind,
        length,
        layout,
        marks=()
        if (kind, name) in QUICK and (layout is CacheLayout.NATIVE or (kind, name) in WHOLE)
        else pytest.mark.slow,
    )
    for kind in KINDS
    for name, length in LENGTHS.items()
    for layout in LAYOUTS
]


@pytest.mark.parametrize(("kind", "length", "layout"), REAL)
def test_every_real_drafter_is_lossless(
    backend: Any, folders: Any, targets: Any, kind: str, layout: CacheLayout, length: int
) -> None:
    target, prompt = targets[kind], prompt_of(length)
    expected = list(known(backend, target, prompt))
    dflash = backend.load_dflash(folders / "dflash", target)
    sliding = backend.load_dflash(folders / "dflash-sliding", target)
    runs = [(dflash, 7, 512), (sliding, 2, 5), (NgramModel(min_tokens=1), 5, 7), (NoDrafter(), 4, 5), (dflash, 0, 5)]
    for drafter, depth, chunk in runs:
        steps = drafted(backend, target, drafter, prompt, Stopping(BUDGET), depth, layout, chunk)
        assert tokens_of(steps) == expected, f"{drafter.info.name} depth {depth} chunk {chunk}"
        if drafter is dflash and depth:
            assert sum(step.drafter_forwards for step in steps) > 0


ADVERSARIES: dict[str, Callable[[int], Callable[[int, int], bool]]] = {
    "always right": lambda _: lambda step, index: False,
    "always wrong": lambda _: lambda step, index: True,
    "right then wrong": lambda place: lambda step, index: index >= place,
    "another place each step": lambda place: lambda step, index: index == (step * 3 + place) % 8,
}


ADVERSARIAL = [
    pytest.param(kind, name, layout, marks=() if kind == "gemma4" or "then" in name else pytest.mark.slow)
    for kind in CONFIGS
    for name in ADVERSARIES
    for layout in LAYOUTS
]


@pytest.mark.parametrize(("kind", "adversary", "layout"), ADVERSARIAL)
def test_adversarial_drafters_change_no_token(
    backend: Any, targets: Any, kind: str, adversary: str, layout: CacheLayout
) -> None:
    target, prompt = targets[kind], prompt_of(WINDOW + 3)
    answer = list(known(backend, target, prompt))
    places = range(8) if kind == "gemma4" else (1, 6)
    for place in places if "place" in adversary or "then" in adversary else (0,):
        wrong = ADVERSARIES[adversary](place)
        model = ScriptedModel(tuple(answer), len(prompt), VOCAB, wrong, capture=(0, 3))
        steps = drafted(backend, target, model, prompt, Stopping(BUDGET), 7, layout)
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
def test_a_stop_at_every_position_ends_both_ways_of_decoding_alike(backend: Any, targets: Any, kind: str) -> None:
    target, prompt = targets[kind], prompt_of(WINDOW + 3)
    answer = list(known(backend, target, prompt))
    right = ScriptedModel(tuple(answer), len(prompt), VOCAB, lambda step, index: False)
    for place, token in enumerate(answer):
        first = answer.index(token)
        steps = drafted(backend, target, right, prompt, Stopping(BUDGET, frozenset({token})))
        assert tokens_of(steps) == answer[: first + 1]
        assert steps[-1].stop is StopReason.EOS
        steps = drafted(backend, target, right, prompt, Stopping(place + 1))
        assert tokens_of(steps) == answer[: place + 1]
        assert steps[-1].stop is StopReason.BUDGET
        assert tokens_of(backend.native(target).decode(prompt, Stopping(place + 1), 512)) == answer[: place + 1]


def test_a_mask_id_that_is_a_stop_id_stops_only_when_the_target_emits_it(
    backend: Any, folders: Any, targets: Any
) -> None:
    target, prompt = targets["gemma4"], prompt_of(20)
    dflash = backend.load_dflash(folders / "dflash", target)
    mask = dflash.config.mask_token_id
    answer = list(known(backend, target, prompt))
    assert mask not in answer
    steps = drafted(backend, target, dflash, prompt, Stopping(BUDGET, frozenset({mask})))
    assert tokens_of(steps) == answer
    assert steps[-1].stop is StopReason.BUDGET


def test_cancelling_between_steps_ends_the_sequence(backend: Any, targets: Any) -> None:
    target, prompt = targets["qwen3"], prompt_of(9)
    answer = list(known(backend, target, prompt))
    for drafter in (NoDrafter(), ScriptedModel(tuple(answer), len(prompt), VOCAB, lambda step, index: index > 1)):
        stopping = Stopping(BUDGET)
        stopping.cancelled = lambda stopping=stopping: len(stopping.emitted) >= 7
        steps = drafted(backend, target, drafter, prompt, stopping, depth=3)
        assert steps[-1].stop is StopReason.CANCELLED
        assert 7 <= len(tokens_of(steps)) < 7 + 4
        assert tokens_of(steps) == answer[: len(tokens_of(steps))]


def test_the_controller_changes_depths_and_no_token(backend: Any, folders: Any, targets: Any) -> None:
    target, prompt = targets["gemma4"], prompt_of(20)
    answer = list(known(backend, target, prompt, 120))
    right = ScriptedModel(tuple(answer), len(prompt), VOCAB, lambda step, index: (step // 5) % 2 == 1, capture=(0, 2))
    policy = ControlledDepth(7)
    # The account must not decide this test: whatever the machine's speed, every probe is affordable.
    policy.decoded_s = 1e6
    steps = drafted(backend, target, right, prompt, Stopping(120), policy)
    assert tokens_of(steps) == answer
    assert {0, 3} <= {step.drafted for step in steps}


@pytest.mark.ci
def test_decoding_ahead_may_stop_anywhere_and_go_on_exactly(backend: Any, targets: Any) -> None:
    for kind in CONFIGS:
        target, prompt = targets[kind], prompt_of(WINDOW + 3)
        answer = list(known(backend, target, prompt))
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
            assert rest == answer[taken + 1 : taken + 11], kind
            assert sequence.length == len(prompt) + taken + 10


def test_the_forward_that_is_under_way_is_the_last_once_decoding_ahead_is_to_end(backend: Any, targets: Any) -> None:
    target, prompt = targets["gemma4"], prompt_of(WINDOW + 3)
    answer = list(known(backend, target, prompt))
    for taken in (1, 2, 5):
        sequence = target.open((), CacheLayout.NATIVE)
        *_, last = sequence.prefill(prompt, 512)
        tokens = until_told(sequence, backend.greedy(target).first(last).bonus, taken)
        assert tokens == answer[: taken + 2]
        assert sequence.length == len(prompt) + taken + 1
        rest = [outcome.bonus for outcome, _ in sequence.decode_ahead(tokens[-1], 5)]
        assert rest == answer[taken + 2 : taken + 7]


@pytest.mark.ci
def test_two_models_on_two_threads_decode_as_they_do_alone(backend: Any, folders: Any, targets: Any) -> None:
    expected: dict[Any, Any] = {}
    in_threads: dict[Any, Any] = {}

    def run(kind: str, seed: int, into: dict[Any, Any]) -> None:
        dflash = backend.load_dflash(folders / "dflash", targets[kind])
        into[kind, seed] = tokens_of(drafted(backend, targets[kind], dflash, prompt_of(40, seed), Stopping(BUDGET)))

    work = [(kind, seed) for kind in ("gemma4", "qwen3") for seed in range(2)]
    for kind, seed in work:
        run(kind, seed, expected)
    threads = [threading.Thread(target=run, args=(kind, seed, in_threads)) for kind, seed in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_threads == expected


@pytest.mark.ci
def test_a_quantised_mixture_of_experts_decodes_alike_with_and_without_drafts(backend: Any, targets: Any) -> None:
    target, prompt = targets["4bit"], prompt_of(30)
    assert target.info.dtype == "4bit"
    answer = list(known(backend, target, prompt))
    assert tokens_of(backend.native(target).decode(prompt, Stopping(BUDGET), 512)) == answer
    for wrong in ADVERSARIES.values():
        model = ScriptedModel(tuple(answer), len(prompt), VOCAB, wrong(2), capture=(1, 4))
        assert tokens_of(drafted(backend, target, model, prompt, Stopping(BUDGET))) == answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_own_forward_is_mlx_lms_forward(targets: Any, kind: str) -> None:
    target, prompt = targets[kind], prompt_of(30)
    for length in (1, 2, 30):
        expected = target.module(mx.array([prompt[:length]]))[0]
        hidden, _ = target.family.forward(mx.array(prompt[:length]), target.open((), CacheLayout.FULL).caches, ())
        assert close(target.family.head(hidden[0]), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_capture_is_the_residual_stream_after_a_layer_whatever_the_chunk(targets: Any, kind: str) -> None:
    target, prompt, layers = targets[kind], prompt_of(30), (0, 2, 3)
    captured = []
    for chunk in (512, 11):
        sequence = target.open(layers, CacheLayout.NATIVE)
        forwards = list(sequence.prefill(prompt, chunk))
        assert [forward.logits is None for forward in forwards[:-1]] == [True] * (len(forwards) - 1)
        captured.append(mx.concatenate([sequence.committed(forward, forward.rows) for forward in forwards]))
    assert close(captured[0], captured[1])
    # The last captured layer continues into the rest of the network: its states decide the logits.
    module = getattr(target.module, "language_model", target.module)
    tail = [module.model.layers[index] for index in range(4, target.info.layer_count)]
    assert captured[0].shape == (30, 3 * target.info.hidden_size)
    if kind == "qwen3":
        assert not tail
        logits = target.family.head(module.model.norm(captured[0][:, 2 * target.info.hidden_size :]))
        assert close(logits, target.module(mx.array([prompt]))[0])


def test_sliding_layers_hold_window_and_block_and_the_full_layout_holds_everything(targets: Any) -> None:
    target, prompt = targets["gemma4"], prompt_of(400)
    bytes_by_layout = {}
    for layout in LAYOUTS:
        sequence = target.open((), layout)
        for _ in sequence.prefill(prompt, 64):
            pass
        sequence.forward_block(5, Draft(tokens=tuple(range(5, 12)), count=7))
        sequence.crop(len(prompt) + 1)
        bytes_by_layout[layout] = [cache.measured_bytes() for cache in sequence.caches]
        assert sequence.measured_bytes() == sum(bytes_by_layout[layout])
    row_bytes = 2 * 2 * 8 * 4
    native_caches = target.open((), CacheLayout.NATIVE).caches
    for cache, native, full in zip(
        native_caches, bytes_by_layout[CacheLayout.NATIVE], bytes_by_layout[CacheLayout.FULL], strict=True
    ):
        if cache.window:
            assert native <= row_bytes * (WINDOW - 1 + 2 * cache.slack_rows)
            assert full >= row_bytes * 400
        else:
            assert native == full


@pytest.mark.ci
def test_a_drafters_context_is_capped_and_the_cap_changes_only_drafts(
    backend: Any, folders: Any, targets: Any, tmp_path: Any
) -> None:
    nested = {"block_size": 8, "mask_token_id": 3, "target_layer_ids": [0, 2], "context_tokens": 24}
    target, prompt = targets["gemma4"], prompt_of(150)
    whole = backend.load_dflash(folders / "dflash", target)
    capped = backend.load_dflash(write_dflash(tmp_path, dflash_config=nested), target)
    answer = list(known(backend, target, prompt))
    assert tokens_of(drafted(backend, target, capped, prompt, Stopping(BUDGET), chunk=20)) == answer
    proposed = {}
    for length in (20, 150):
        drafts = []
        for model in (whole, capped):
            sequence, drafter = target.open(model.capture, CacheLayout.NATIVE), model.open()
            for forward in sequence.prefill(prompt[:length], 16):
                shown = prompt[forward.start : forward.start + forward.rows]
                drafter.observe(forward.start, shown, sequence.committed(forward, forward.rows))
            ids = mx.array([5] + [3] * 7)
            drafts.append(model.hidden_rows(ids, length, drafter.shown()))
            proposed[length, model is capped] = drafter.measured_bytes()
        same = mx.max(mx.abs(drafts[0] - drafts[1])).item() < 1e-5
        assert same == (length == 20)
    row_bytes = 2 * 2 * 2 * 8 * 4
    assert proposed[150, True] <= row_bytes * (24 + 2 * 32)
    assert proposed[150, False] >= row_bytes * 150


def test_the_targets_uncertainty_is_read_with_its_tokens_and_gates_drafting(
    backend: Any, folders: Any, targets: Any
) -> None:
    target, prompt = targets["gemma4"], prompt_of(20)
    sequence, accept = target.open((), CacheLayout.NATIVE), backend.greedy(target)
    *_, last = sequence.prefill(prompt, 512)
    outcome = accept.first(last)
    probabilities = mx.softmax(last.logits[0])
    assert outcome.min_entropy_nats == pytest.approx(-mx.log(mx.max(probabilities)).item(), abs=1e-5)
    ahead, _ = next(sequence.decode_ahead(outcome.bonus, 1))
    sequence.crop(len(prompt))
    drafted_outcome = accept.decide(Draft((1,), 1), sequence.forward_block(outcome.bonus, Draft((1,), 1)))
    assert ahead.min_entropy_nats == pytest.approx(drafted_outcome.min_entropy_nats, abs=1e-4)
    answer = list(known(backend, target, prompt))
    dflash = backend.load_dflash(folders / "dflash", target)
    for limit in (0.0, 1e9):
        steps = drafted(backend, target, dflash, prompt, Stopping(BUDGET), EntropyGate(3, limit))
        assert tokens_of(steps) == answer
        assert any(step.drafted for step in steps[2:]) == (limit > 0.0)


def test_logits_that_are_not_finite_are_refused_on_the_device(backend: Any, targets: Any) -> None:
    accept, vocab = backend.greedy(targets["gemma4"]), VOCAB
    for bad in (float("nan"), float("inf")):
        logits = mx.zeros((3, vocab))
        logits[:, 7] = 1.0
        logits[1, 50] = bad
        outcome = accept.decide(Draft((7, 7), 2), Forward(logits, None, 0, 3))
        assert (outcome.tokens, outcome.guard) == ((7,), "non-finite logits")
    logits = mx.full((1, vocab), float("-inf"))
    logits[0, 9] = 2.0
    assert accept.decide(Draft(), Forward(logits, None, 0, 1)).tokens == (9,)
