"""torch and MLX walk the same paths with one DFlash 2 checkpoint, greedily and drawn."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint import ASSETS
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.loading import Engine, load_backend, open_engine
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.drafter_parity import compare
from engine.tokenizer import Tokenizer
from engine.verification.rejection import Sampling
from tests.fakes import naive_dflash2

pytest.importorskip("torch", reason="agreement needs both backends")
pytest.importorskip("mlx.core", reason="agreement needs both backends")

NAME = "kakeya-tiny-gemma4"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    """The packaged pair in both backends, its drafter grown into a second-generation one."""
    root = tmp_path_factory.mktemp("models")
    naive_dflash2.write(root / "grown", *naive_dflash2.grown(ASSETS / f"{NAME}-dflash", 0.05))
    backends = (load_backend("mlx"), load_backend("torch", device="cpu"))
    return {backend.name: open_engine(backend, NAME, "grown", roots=str(root)) for backend in backends}


@pytest.fixture(scope="module")
def prompts() -> Any:
    return load_prompts("code-structured", Tokenizer(ASSETS / NAME), NAME).lasting(48)


def test_drafts_acceptance_and_output_are_the_same(engines: dict[str, Engine], prompts: Any) -> None:
    parity = compare(engines["mlx"], engines["torch"], prompts.spread(1).prompts, 48)
    assert parity.agreed_tokens == parity.drafted_tokens > 30
    assert parity.identical_generations == 1
    assert any(count > 1 for row in parity.generations for count in row.torch_accepted_per_step)


def test_a_seed_draws_the_same_text(engines: dict[str, Engine], prompts: Any) -> None:
    settings, runs = Sampling(temperature=1.2, top_k=40, seed=6), []
    for engine in engines.values():
        model: Any = engine.drafter
        sampled = model.sampling(settings)
        parts = Parts(
            engine.target.open(sampled.capture, CacheLayout.NATIVE),
            sampled.open(),
            engine.backend.sampling(engine.target, settings),
            FixedDepth(5),
            engine.backend.clock,
        )
        steps = list(speculative(parts, prompts.prompts[0].ids, Stopping(24)))
        runs.append([(step.tokens, step.drafted, step.accepted) for step in steps])
    assert runs[0] == runs[1]
