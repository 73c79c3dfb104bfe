"""On MLX: the own forward is mlx_lm's, a quantised mixture decodes alike, buffers hold what layouts say."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tiny_mlx import CONFIGS, VOCAB, WINDOW, write_dflash
from tests.support.decoding import ADVERSARIES, BUDGET, drafted, plain, prompt_of, tokens_of

ROUNDING = 1e-5  # of the largest value: another order of fp32 sums, as another chunk or BLAS brings


def close(got: mx.array, expected: mx.array) -> bool:
    """Return whether two fp32 arrays agree up to the order of their sums."""
    scale = max(1.0, mx.max(mx.abs(expected)).item())
    return bool(mx.max(mx.abs(got - expected)).item() <= ROUNDING * scale)


KINDS = [*CONFIGS, "wrapped"]
LAYOUTS = [CacheLayout.NATIVE, CacheLayout.FULL]


@pytest.mark.ci
def test_a_quantised_mixture_of_experts_decodes_alike_with_and_without_drafts(backend: Any, targets: Any) -> None:
    target, prompt = targets["4bit"], prompt_of(30)
    assert target.info.dtype == "affine4"
    answer = list(plain(backend, target, prompt))
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
    answer = list(plain(backend, target, prompt))
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


def test_the_targets_uncertainty_is_read_with_its_tokens(backend: Any, targets: Any) -> None:
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
