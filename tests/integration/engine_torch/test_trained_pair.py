"""The packaged target and drafter: trained, so acceptance is real and parity has something to lose."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint import ASSETS
from engine.loading import Engine, load_backend, open_engine
from engine.measurement.selection import load_prompts
from engine.studies.drafter_parity import compare
from engine.tokenizer import Tokenizer
from tests.integration.engine_torch.test_dflash import assert_equal_to_native

TARGET, DRAFTER = "kakeya-tiny-gemma4", "kakeya-tiny-gemma4-dflash"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return open_engine(load_backend("torch", "cpu"), TARGET, DRAFTER, roots="")


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> Any:
    return load_prompts("code-structured", Tokenizer(engine.folder), TARGET).lasting(48)


def test_the_shipped_file_drafts_in_transformers_as_it_does_here(engine: Engine, prompts: Any) -> None:
    accepted = assert_equal_to_native(
        engine.backend, engine.target, ASSETS / DRAFTER, prompts.prompts[0].ids, budget=48, steps=6
    )
    assert sum(accepted) > len(accepted) / 2


def test_torch_and_mlx_draft_accept_and_emit_the_same(engine: Engine, prompts: Any) -> None:
    pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
    mlx = open_engine(load_backend("mlx"), TARGET, DRAFTER, roots="")
    parity = compare(mlx, engine, prompts.spread(1).prompts, 48)
    assert parity.agreed_tokens == parity.drafted_tokens > 30
    assert parity.identical_generations == 1
    assert any(count > 2 for row in parity.generations for count in row.torch_accepted_per_step)
