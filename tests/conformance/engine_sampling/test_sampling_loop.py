"""The whole loop under a sampling rule: every transition follows the target's distribution, whatever is drafted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.protocols import Drafter
from engine.stopping import Stopping
from engine.verification.rejection import Sampling
from engine.verification.sampled import SamplingAccept
from tests.conformance.engine_sampling.backends import SamplingBackend
from tests.conformance.engine_sampling.chi_square import p_value, rejected
from tests.fakes import rejection
from tests.fakes.late_drafter import LateDrafter
from tests.fakes.markov import FakeClock, MarkovDrafter, MarkovSequence

STATES = 5
TOKENS = 1000
SETTINGS = Sampling(temperature=0.9, top_k=4, seed=11)


@pytest.fixture(params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> SamplingBackend:
    return SamplingBackend(request.param)


def chain(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=1.2, size=(STATES, STATES))


def run(backend: SamplingBackend, drafter: Drafter, depth: int, settings: Sampling, tokens: int) -> list[int]:
    accept = SamplingAccept(settings, backend.module.decide, lambda forward: 0.0)
    sequence = MarkovSequence(chain(0), backend.array)
    parts = Parts(sequence, drafter, accept, FixedDepth(depth), FakeClock())
    return [token for step in speculative(parts, (0,), Stopping(tokens)) for token in step.tokens]


@pytest.mark.parametrize("case", ["right", "unrelated", "deterministic", "late", "late and right", "no draft"])
def test_every_transition_follows_the_target(backend: SamplingBackend, case: str) -> None:
    own = {"unrelated": 7, "late": 7}.get(case, 0)
    drafter = MarkovDrafter(chain(own), backend.array, None if case == "deterministic" else SETTINGS)
    proposer = LateDrafter(drafter) if case.startswith("late") else drafter
    tokens = [0, *run(backend, proposer, 0 if case == "no draft" else 4, SETTINGS, TOKENS)]
    assert len(tokens) == TOKENS + 1
    assert (drafter.forwards > 0) == (case != "no draft")
    p_values = {}
    for state in range(STATES):
        following = [after for before, after in pairwise(tokens) if before == state]
        expected = rejection.shape(chain(0)[state].tolist(), SETTINGS.temperature, SETTINGS.top_k, SETTINGS.top_p)
        p_values[str(state)] = p_value(np.bincount(following, minlength=STATES), np.array(expected))
    assert rejected(p_values) == []


def test_a_seed_repeats_and_another_differs(backend: SamplingBackend) -> None:
    def tokens(seed: int) -> list[int]:
        settings = Sampling(temperature=0.9, seed=seed)
        return run(backend, MarkovDrafter(chain(7), backend.array, settings), 3, settings, 60)

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def test_both_backends_draw_the_same_tokens_from_the_same_seed() -> None:
    runs = [
        run(side, MarkovDrafter(chain(7), side.array, SETTINGS), 4, SETTINGS, 300)
        for side in (SamplingBackend("torch"), SamplingBackend("mlx"))
    ]
    assert runs[0] == runs[1]
