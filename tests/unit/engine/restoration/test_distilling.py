"""Training end to end brings a target's answers on restored rows nearer to its own, and goes on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="f_thetas are trained with torch")

from engine.loading import load_backend  # noqa: E402
from engine.restoration.distilling import Distillation  # noqa: E402
from engine.restoration.episodes import Episode  # noqa: E402
from engine.restoration.restorers import FTheta, full_widths  # noqa: E402
from engine.restoration.settings import RestorationSettings  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

BOUND = CacheLayout.parse("sink2+window12")


def drawn(number: int, held_out: bool) -> Episode:
    """Return one of two episodes: random ones have nothing in common that could be learnt."""
    del held_out
    rng = np.random.default_rng(number % 2)
    ids = [int(token) for token in rng.integers(5, tiny_torch.VOCAB, size=50)]
    return Episode(tuple(ids[:40]), tuple(ids[40:44]), tuple(ids[44:]))


@pytest.fixture(scope="module", params=["qwen3", "gemma4"])
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[FTheta, Any]:
    torch.set_num_threads(1)
    root, backend = tmp_path_factory.mktemp("distilled"), load_backend("torch", "cpu")
    target = backend.load_target(tiny_torch.write_target(root / "target", request.param))
    drafter = backend.load_dflash(tiny_torch.write_dflash(root / "drafter"), target)
    named = [(info.name, info.digest) for info in (target.info, drafter.info)]
    settings = RestorationSettings("context", tiny_torch.HIDDEN, 8, full_widths(target.family), *named)
    generator = torch.Generator().manual_seed(2)
    shapes = settings.tensor_shapes.items()
    tensors = {name: torch.randn(shape, generator=generator) / shape[0] ** 0.5 for name, shape in shapes}
    return FTheta(settings, tensors, drafter.capture, drafter.context, target.family.finish), target


def test_the_loss_falls_and_a_killed_training_ends_in_the_same_numbers(
    fitted: tuple[FTheta, Any], tmp_path: Path
) -> None:
    f_theta, target = fitted
    whole = Distillation(f_theta, target, BOUND, drawn, tmp_path / "whole")
    before = whole.evaluate()["held_out_loss"]
    straight = whole.train(12)
    assert 0 < whole.evaluate()["held_out_loss"] < before
    assert {name: tensor.shape for name, tensor in straight.items()} == {
        name: tensor.shape for name, tensor in f_theta.tensors.items()
    }
    cut = Distillation(f_theta, target, BOUND, drawn, tmp_path / "cut")
    cut.advance(12, 6, None, stop_after=5)
    cut.save()
    again = Distillation(f_theta, target, BOUND, drawn, tmp_path / "cut")
    assert again.step == 5
    other = again.train(12)
    assert all(torch.equal(straight[name], other[name]) for name in straight)
