"""Sampling with real tiny models: a drafter that draws, the same tokens from the same seed on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.protocols import SamplingDrafterModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Step
from engine.verification.rejection import Sampling
from tests.support.decoding import tokens_of

PROMPT = tuple(range(5, 40))


def sampled(backend: Any, target: Any, folder: Path, settings: Sampling, depth: int) -> list[Step]:
    model = backend.load_dflash(folder / "dflash", target)
    assert isinstance(model, SamplingDrafterModel)
    drafter = model.sampling(settings)
    sequence = target.open(drafter.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, drafter.open(), backend.sampling(target, settings), FixedDepth(depth), backend.clock)
    steps = list(speculative(parts, PROMPT, Stopping(30)))
    assert sequence.length == steps[-1].position
    return steps


def test_a_seed_repeats_and_another_gives_another_text(backend: Any, targets: Any, folders: Path) -> None:
    runs = [
        tokens_of(sampled(backend, targets["gemma4"], folders, Sampling(temperature=2.0, seed=seed), depth))
        for seed, depth in ((1, 4), (1, 4), (2, 4), (1, 0))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert len({len(run) for run in runs}) == 1


def test_a_drafter_that_draws_is_accepted_at_the_rate_of_overlap(backend: Any, targets: Any, folders: Path) -> None:
    steps = sampled(backend, targets["qwen3"], folders, Sampling(temperature=50.0, seed=3), 4)
    drafted, accepted = sum(step.drafted for step in steps), sum(step.accepted for step in steps)
    # At so high a temperature both distributions are nearly uniform, so nearly every draw is kept.
    assert accepted > 0.8 * drafted > 0


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_both_backends_draw_the_same_text(backend: Any, targets: Any, folders: Path, kind: str) -> None:
    pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
    from engine.backends.mlx.backend import MlxBackend

    other = MlxBackend()
    settings = Sampling(temperature=1.5, top_k=20, top_p=0.9, seed=5)
    ours = sampled(backend, targets[kind], folders, settings, 4)
    theirs = sampled(other, other.load_target(folders / kind), folders, settings, 4)
    assert tokens_of(ours) == tokens_of(theirs)
    assert [step.accepted for step in ours] == [step.accepted for step in theirs]


def test_the_first_drafts_are_drawn_from_the_drafters_own_distribution(
    backend: Any, targets: Any, folders: Path
) -> None:
    import torch

    model = backend.load_dflash(folders / "dflash", targets["qwen3"])
    features = torch.randn(9, 96, generator=torch.Generator().manual_seed(1))
    first_tokens: list[int] = []
    for seed in range(400):
        drafter = model.sampling(Sampling(temperature=0.7, top_k=3, seed=seed)).open()
        drafter.observe(0, (0,) * 9, features)
        draft = drafter.ask(8, 9, 1)
        first_tokens += draft.tokens.tolist()
    probs = draft.probs[0].numpy()
    assert np.count_nonzero(probs) == 3
    counts = np.bincount(first_tokens, minlength=len(probs)) / 400
    assert np.abs(counts - probs).sum() / 2 < 0.1
