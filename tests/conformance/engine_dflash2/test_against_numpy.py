"""Both backends compute DFlash 2 as plain numpy does, step after step, and as they do from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.checkpoint import ASSETS
from engine.verification.rejection import Sampling
from tests.conformance.engine_dflash2.conftest import Side
from tests.fakes import naive_dflash2
from tests.fakes.naive_dflash2 import NaiveDFlash2

QWEN, GEMMA = "kakeya-tiny-qwen3", "kakeya-tiny-gemma4"
HIDDEN, VOCAB = 192, 2048
LAST_FULL = ["sliding_attention", "full_attention", "full_attention"]
VARIATIONS: dict[str, dict[str, Any]] = {
    "as published": {},
    "no direction told": {"is_causal": None},
    "every layer causal": {"is_causal": True},
    "nested direction": {"is_causal": None, "dflash_config": {"causal": False}},
    "capped logits": {"dflash_config": {"final_logit_softcapping": 3.0, "output_multiplier": 0.5}},
    "scaled embedding": {"dflash_config": {"input_embedding_scale": 2.5}},
    "three taps": {"dflash_config": {"conv_kernel_size": 3}},
    "one tap": {"dflash_config": {"conv_kernel_size": 1}},
    "one channel a group": {"dflash_config": {"conv_group_size": 1}},
    "one group": {"dflash_config": {"conv_group_size": HIDDEN}},
    "one candidate": {"dflash_config": {"selector_top_k": 1}},
    "rank of one, five candidates": {"dflash_config": {"selector_rank": 1, "selector_top_k": 5}},
    "capped context": {"layer_types": LAST_FULL, "dflash_config": {"context_tokens": 11}},
}
STEPS = [(13, 7), (1, 7), (4, 3), (6, 1), (9, 5), (8, 2), (1, 7), (2, 7)]


def close(got: np.ndarray, expected: np.ndarray) -> None:
    """Check agreement to 1e-5 of the largest value: what another order of fp32 sums brings."""
    np.testing.assert_allclose(got, expected, atol=1e-5 * max(1.0, np.abs(expected).max()), rtol=0)


def features_of(rows: int, captured: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, captured * HIDDEN)).astype(np.float32)


@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_configuration_equals_the_written_out_formulas(
    side: Side, tables: Any, tmp_path: Path, variation: str
) -> None:
    config = naive_dflash2.config_of(HIDDEN, VOCAB, **VARIATIONS[variation])
    tensors = naive_dflash2.random_tensors(config)
    naive = NaiveDFlash2(config, tensors, tables[QWEN])
    model = side.backend.load_dflash(naive_dflash2.write(tmp_path, config, tensors), side.targets[QWEN])
    assert model.info.format == "dflash-v2"
    features, drafter, length = features_of(60, 2), model.open(), 0
    for step, (rows, count) in enumerate(STEPS):
        drafter.observe(length, (0,) * rows, side.array(features[length : length + rows]))
        length += rows
        bonus = 100 + step
        expected = naive.hidden(features[:length], bonus, count)
        got = side.hidden(drafter, bonus, length, count)
        close(got, expected)
        close(side.logits(model, got), naive.logits(expected))
        draft = drafter.ask(bonus, length, count)
        assert draft.tokens.tolist() == naive.walk(bonus, expected[1:])
        assert draft.probs is None
        assert len(draft.tokens) == draft.count == count


def test_twenty_steps_of_growing_context_equal_numpy_and_a_drafter_that_starts_there(
    side: Side, tables: Any, tmp_path: Path
) -> None:
    config = naive_dflash2.config_of(HIDDEN, VOCAB)
    tensors = naive_dflash2.random_tensors(config, seed=1)
    naive = NaiveDFlash2(config, tensors, tables[GEMMA])
    model = side.backend.load_dflash(naive_dflash2.write(tmp_path, config, tensors), side.targets[GEMMA])
    lengths = np.random.default_rng(2).integers(1, 5, size=20)
    features, drafter, length = features_of(int(lengths.sum()), 2), model.open(), 0
    for step, rows in enumerate(lengths.tolist()):
        drafter.observe(length, (0,) * rows, side.array(features[length : length + rows]))
        length += rows
        fresh = model.open()
        fresh.observe(0, (0,) * length, side.array(features[:length].copy()))
        grown = side.hidden(drafter, step, length, 7)
        close(grown, side.hidden(fresh, step, length, 7))
        if step % 5 == 0:
            expected = naive.hidden(features[:length], step, 7)
            close(grown, expected)
            assert drafter.ask(step, length, 7).tokens.tolist() == naive.walk(step, expected[1:])


@pytest.mark.parametrize("temperature", [0.3, 2.5])
def test_a_drawn_walk_carries_exactly_what_it_was_drawn_from(
    side: Side, tables: Any, tmp_path: Path, temperature: float
) -> None:
    config = naive_dflash2.config_of(HIDDEN, VOCAB)
    tensors = naive_dflash2.random_tensors(config, seed=2)
    naive = NaiveDFlash2(config, tensors, tables[QWEN])
    model = side.backend.load_dflash(naive_dflash2.write(tmp_path, config, tensors), side.targets[QWEN])
    features = features_of(21, 2)
    hidden = naive.hidden(features, 77, 7)[1:]
    walks = set()
    for seed in range(12):
        # The target's top-k and top-p say nothing about the proposal.
        drafter = model.sampling(Sampling(temperature=temperature, top_k=2, top_p=0.5, seed=seed)).open()
        drafter.observe(0, (0,) * 21, side.array(features))
        draft = drafter.ask(77, 21, 7)
        path = draft.tokens.tolist()
        walks.add(tuple(path))
        expected = naive.proposal(77, path, hidden, temperature)
        np.testing.assert_allclose(np.asarray(draft.probs), expected, atol=2e-5)
        assert all(row[token] > 0 for row, token in zip(expected, path, strict=True))
        assert (np.count_nonzero(expected, axis=-1) == 16).all()
    assert len(walks) > 1


@pytest.mark.parametrize("name", [QWEN, GEMMA])
def test_parts_that_change_nothing_leave_v1_bit_for_bit(side: Side, tmp_path: Path, name: str) -> None:
    target, shipped = side.targets[name], ASSETS / f"{name}-dflash"
    folder = naive_dflash2.write(tmp_path, *naive_dflash2.grown(shipped, 0.0))
    models = [side.backend.load_dflash(path, target) for path in (shipped, folder)]
    assert [model.info.format for model in models] == ["dflash-v1", "dflash-v2"]
    drafters = [model.open() for model in models]
    features, length = features_of(90, 3), 0
    for step, rows in enumerate([40, 1, 8, 3, 8, 2, 5]):
        for drafter in drafters:
            drafter.observe(length, (0,) * rows, side.array(features[length : length + rows]))
        length += rows
        first, second = (side.hidden(drafter, 50 + step, length, 7) for drafter in drafters)
        np.testing.assert_array_equal(first, second)
        first, second = (drafter.ask(50 + step, length, 7).tokens.tolist() for drafter in drafters)
        assert first == second
    changed = naive_dflash2.write(tmp_path / "b", *naive_dflash2.grown(shipped, 0.5))
    drafter = side.backend.load_dflash(changed, target).open()
    drafter.observe(0, (0,) * length, side.array(features[:length].copy()))
    assert (
        np.abs(side.hidden(drafter, 50 + step, length, 7) - side.hidden(drafters[0], 50 + step, length, 7)).max() > 0.1
    )
