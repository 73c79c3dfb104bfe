"""Both backends on the same checkpoint in fp32: logits, captured states, tokens, acceptance, drafts."""

from __future__ import annotations

import importlib
import math
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.loading import load_backend
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward

pytest.importorskip("torch", reason="agreement needs both backends")
pytest.importorskip("mlx.core", reason="agreement needs both backends")

BUDGET = 16
KINDS = ("gemma4", "gemma4-moe", "gemma4-shared", "qwen3")
PROMPT = tuple(random.Random(3).randrange(5, 97) for _ in range(33))


@pytest.fixture(scope="module")
def backends() -> dict[str, Any]:
    return {"mlx": load_backend("mlx"), "torch": load_backend("torch", device="cpu")}


@pytest.fixture(scope="module")
def pairs(backends: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every target in both backends, from one folder each."""
    from tests.fakes import tiny_torch

    root = tmp_path_factory.mktemp("shared")
    tiny_torch.write_dflash(root / "dflash")
    loaded: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        folder = tiny_torch.write_target(root / kind, kind)
        loaded[kind] = {name: backend.load_target(folder) for name, backend in backends.items()}
    return loaded | {"dflash": {"folder": root / "dflash"}}


def numbers(array: Any) -> np.ndarray:
    return np.array(array.tolist(), dtype=np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_means_the_same_to_both(pairs: Any, kind: str) -> None:
    facts = [
        (info.name, info.digest, info.vocab_size, info.hidden_size, info.layer_count, info.dtype, info.stop_ids)
        for info in (pairs[kind]["mlx"].info, pairs[kind]["torch"].info)
    ]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_captured_states_agree_across_the_window(pairs: Any, kind: str) -> None:
    results = {}
    for name, target in pairs[kind].items():
        sequence = target.open((0, 2), CacheLayout.NATIVE)
        forwards = list(sequence.prefill(PROMPT, 10))
        states = np.concatenate([numbers(sequence.committed(forward, forward.rows)) for forward in forwards])
        results[name] = (numbers(forwards[-1].logits), states)
    for mlx, torch in zip(results["mlx"], results["torch"], strict=True):
        np.testing.assert_allclose(mlx, torch, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_drafts_and_acceptance_agree(backends: Any, pairs: Any, kind: str) -> None:
    runs = {}
    for name, backend in backends.items():
        target = pairs[kind][name]
        accept = backend.greedy(target)
        plain = autoregressive(target.open((), CacheLayout.NATIVE), accept, PROMPT, Stopping(BUDGET))
        drafter = backend.load_dflash(Path(pairs["dflash"]["folder"]), target)
        parts = Parts(
            target.open(drafter.capture, CacheLayout.NATIVE), drafter.open(), accept, FixedDepth(5), backend.clock
        )
        steps = list(speculative(parts, PROMPT, Stopping(BUDGET)))
        tokens = [token for step in steps for token in step.tokens]
        assert tokens == [token for step in plain for token in step.tokens]
        assert tokens == [
            token for step in backend.native(target).decode(PROMPT, Stopping(BUDGET), 512) for token in step.tokens
        ]
        runs[name] = (tokens, [(step.drafted, step.accepted) for step in steps])
    assert runs["mlx"] == runs["torch"]


def test_drafters_propose_the_same_tokens(backends: Any, pairs: Any) -> None:
    proposed = {}
    for name, backend in backends.items():
        target = pairs["gemma4"][name]
        model = backend.load_dflash(Path(pairs["dflash"]["folder"]), target)
        sequence, drafter = target.open(model.capture, CacheLayout.NATIVE), model.open()
        for forward in sequence.prefill(PROMPT, 512):
            drafter.observe(0, PROMPT, sequence.committed(forward, forward.rows))
        proposed[name] = [drafter.ask(bonus, len(PROMPT), 7).tokens.tolist() for bonus in (5, 50, 96)]
        assert drafter.forwards == 3
        assert drafter.measured_bytes() > 0
    assert proposed["mlx"] == proposed["torch"]


@pytest.mark.parametrize("kind", KINDS)
def test_both_say_how_far_a_token_is_from_the_best(pairs: Any, backends: dict[str, Any], kind: str) -> None:
    """The recomputation of outputs rests on these two numbers."""
    gaps, aparts = [], []
    for name, backend in backends.items():
        sequence = pairs[kind][name].open((), CacheLayout.FULL)
        *_, last = sequence.prefill(PROMPT, 512)
        block = sequence.forward_block(7, Draft((8, 9), 2))
        gaps.append([*backend.gaps(last, (7,)), *backend.gaps(block, (8, 9, 10))])
        aparts.append(backend.apart(block, block))
    assert np.allclose(*gaps, atol=1e-3)
    assert min(gaps[0]) >= 0.0
    assert aparts == [0.0, 0.0]


def test_both_tell_a_logit_that_is_no_number_from_one_that_is_masked(backends: dict[str, Any]) -> None:
    rows = {"masked": [1.0, -math.inf, 3.0], "best": [-math.inf, 2.0, 1.0], "broken": [1.0, math.nan, 3.0]}
    made = {"torch": importlib.import_module("torch").tensor, "mlx": importlib.import_module("mlx.core").array}
    for name, backend in backends.items():
        forward = Forward(made[name](list(rows.values())), None, 0, 3)
        gaps = backend.gaps(forward, (0, 1, 2))
        assert gaps[:2] == (2.0, 0.0), name
        assert math.isnan(gaps[2]), name
        masked, broken = (Forward(made[name]([rows[kind]]), None, 0, 1) for kind in ("masked", "broken"))
        assert backend.apart(masked, masked) == 0.0, name
        assert math.isnan(backend.apart(broken, broken)), name


def test_both_write_and_read_the_same_8_bit_rows(backends: dict[str, Any]) -> None:
    chooser = random.Random(0)
    scales = (0.0, 1e-30, 1e-3, 1.0, 700.0, 1e30)
    numbers = [[chooser.gauss(0.0, 1.0) * scale for _ in range(64)] for scale in scales]
    data = bytearray(struct.pack(f"<{64 * len(scales)}f", *[number for row in numbers for number in row]))
    written = {}
    for name, backend in backends.items():
        rows = backend.unpacked(bytearray(data), (len(scales), 64), "float32")
        written[name] = backend.packed([rows], "float8_e4m3")
        assert len(written[name]) == len(scales) * (4 + 64)
    assert written["mlx"] == written["torch"]
    for backend in backends.values():
        read = backend.unpacked(bytearray(written["mlx"]), (len(scales), 64), "float8_e4m3").tolist()
        for row, decoded in zip(numbers, read, strict=True):
            largest = max(map(abs, row))
            assert all(
                abs(value - other) <= max(abs(value) / 15, largest / 2**16)
                for value, other in zip(row, decoded, strict=True)
            )
