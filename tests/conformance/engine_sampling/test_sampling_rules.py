"""Every backend's rejection sampling against the plain-float reference and against the distribution it promises."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest

from engine.verification.rejection import Sampling, Uniforms
from tests.conformance.engine_sampling.backends import SamplingBackend
from tests.conformance.engine_sampling.chi_square import draws_needed, p_value, rejected
from tests.fakes import rejection

VOCAB = 8
TEMPERATURES = (0.5, 1.0, 1.8)
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.3),
    Sampling(temperature=2.0, top_k=3),
    Sampling(temperature=0.8, top_p=0.7),
    Sampling(temperature=1.3, top_k=5, top_p=0.5),
    Sampling(top_k=1),
    Sampling(top_k=100, top_p=1e-9),
]


@pytest.fixture(params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> SamplingBackend:
    return SamplingBackend(request.param)


def logits_of(seed: int, rows: int, vocab: int = VOCAB) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2.0, size=(rows, vocab)).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_shaping_equals_the_reference(backend: SamplingBackend, settings: Sampling) -> None:
    logits = logits_of(1, 40, 23)
    logits[0] = 1.0
    logits[1, 3:9] = logits[1].max() + 1.0
    got = backend.shape(logits, settings)
    expected = [rejection.shape(row, settings.temperature, settings.top_k, settings.top_p) for row in logits]
    np.testing.assert_allclose(got, expected, atol=max(backend.tolerance, 1e-9) * 10)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, atol=1e-5)


def test_ids_that_are_rare_one_by_one_are_drawn_as_often_as_they_weigh_together(backend: SamplingBackend) -> None:
    vocabulary, likely = 1 << 18, 0.993
    # Each of the others weighs less than half of what float32 tells apart next to the likely one.
    weights = np.full((4, vocabulary), (1.0 - likely) / (vocabulary - 1))
    weights[:, 0] = likely
    uniforms = np.array([0.5, 0.9948, 0.9965, 0.9999])
    expected = np.maximum(0.0, (uniforms - likely) / (1.0 - likely)) * vocabulary
    assert np.abs(backend.draw(weights, uniforms) - expected).max() < 0.01 * vocabulary
    assert backend.draw(weights, uniforms)[0] == 0


def test_ids_that_are_rare_one_by_one_count_for_top_p_as_they_weigh_together(backend: SamplingBackend) -> None:
    vocabulary, likely = 1 << 18, 0.993
    logits = np.full((1, vocabulary), math.log((1.0 - likely) / (vocabulary - 1)))
    logits[0, 0] = math.log(likely)
    # Half of what the likely one leaves.
    ids_left = np.count_nonzero(backend.shape(logits, Sampling(top_p=0.9965)))
    assert abs(ids_left - vocabulary / 2) < 0.01 * vocabulary


def test_what_was_proposed_elsewhere_is_tested_as_it_was_drawn(backend: SamplingBackend) -> None:
    proposed = [((3, 1), (0.50001, 0.5)), ((2,), (0.99999,)), ((7, 0, 4), (0.2, 0.3, 0.5))]
    rows = backend.drawn(proposed, VOCAB, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=0, atol=5e-7)
    np.testing.assert_allclose(rows[0, [1, 3]], [0.5 / 1.00001, 0.50001 / 1.00001], atol=5e-7)


@pytest.mark.parametrize("with_probs", [True, False], ids=["sampled draft", "deterministic draft"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_outcomes_equal_the_reference_for_the_same_draws(
    backend: SamplingBackend, settings: Sampling, with_probs: bool
) -> None:
    chooser = random.Random(7)
    seen_lengths = set()
    for case in range(60):
        count = case % 5
        target_logits = logits_of(100 + case, count + 1)
        drafter_logits = target_logits[:count] + 0.7 * logits_of(900 + case, count)
        target = [rejection.shape(row, settings.temperature, settings.top_k, settings.top_p) for row in target_logits]
        proposed = [rejection.shape(row, settings.temperature) for row in drafter_logits]
        draft = [rejection.draw(row, chooser.random()) for row in proposed]
        if not with_probs:
            proposed = [[float(token == index) for index in range(VOCAB)] for token in draft]
        uniforms = [chooser.random() for _ in range(count + 1)]
        expected = rejection.decide(draft, target, proposed, uniforms)
        got = backend.decide(
            draft,
            target_logits,
            np.array(proposed) if with_probs and count else None,
            settings,
            uniforms,
            on_device=case % 2 == 1,
        )
        assert got == expected, f"case {case}"
        seen_lengths.add(got.accepted)
    assert len(seen_lengths) > 1 or settings.top_k == 1 or settings.top_p < 1e-6


def families(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Target logits with the logits of drafters from right to useless; None proposes the most likely token."""
    generator = np.random.default_rng(seed)
    target = generator.normal(scale=1.5, size=VOCAB)
    return {
        "right": (target, target),
        "near": (target, target + generator.normal(scale=0.3, size=VOCAB)),
        "unrelated": (target, generator.normal(scale=1.5, size=VOCAB)),
        "opposite": (target, -2.0 * target),
        "deterministic": (target, None),
    }


def committed_counts(
    backend: SamplingBackend, target: np.ndarray, drafter: np.ndarray | None, temperature: float, draws: int
) -> np.ndarray:
    """Run ``draws`` independent one-token drafts through the backend's own rule and count what was committed."""
    generator = np.random.default_rng([int(temperature * 10), draws, VOCAB])
    p = np.array(rejection.shape(target, temperature))
    if drafter is None:
        tokens, proposed = np.full(draws, int(p.argmin())), None
    else:
        q = np.array(rejection.shape(drafter, temperature))
        tokens, proposed = generator.choice(VOCAB, size=draws, p=q), np.tile(q, (draws, 1))
    tests, finals = generator.random(draws), generator.random(draws)
    committed = backend.verify(np.tile(p, (draws, 1)), proposed, tokens, tests, finals)
    return np.bincount(committed, minlength=VOCAB)


def test_committed_tokens_follow_the_target_whatever_the_drafter(backend: SamplingBackend) -> None:
    cases = list(product(TEMPERATURES, families(0)))
    draws = draws_needed(VOCAB, 0.02, len(cases))
    assert draws > 20_000
    results = {}
    for temperature, name in cases:
        target, drafter = families(0)[name]
        counts = committed_counts(backend, target, drafter, temperature, draws)
        results[f"{name} at {temperature}"] = p_value(counts, np.array(rejection.shape(target, temperature)))
    assert rejected(results) == []


def test_the_test_above_finds_a_total_variation_of_two_percent() -> None:
    cases = len(TEMPERATURES) * len(families(0))
    draws = draws_needed(VOCAB, 0.02, cases)
    generator = np.random.default_rng(5)
    rejections = 0
    for _ in range(40):
        p = np.array(rejection.shape(generator.normal(scale=1.5, size=VOCAB), 1.0))
        # The hardest deviation: proportional to p, up on some tokens and down on the others.
        up = np.zeros(VOCAB, dtype=bool)
        for index in generator.permutation(VOCAB):
            up[index] = p[up].sum() + p[index] <= 0.6
        wrong = p * np.where(up, 1 + 0.02 / p[up].sum(), 1 - 0.02 / p[~up].sum())
        assert math.isclose(np.abs(wrong - p).sum() / 2, 0.02, rel_tol=1e-9)
        counts = generator.multinomial(draws, wrong)
        rejections += bool(rejected({"this": p_value(counts, p), **{str(i): 0.5 for i in range(cases - 1)}}))
    assert rejections >= 30


@pytest.mark.parametrize("rule", ["accept without a test", "redraw from the target"])
def test_plausible_mistakes_are_found(rule: str) -> None:
    target, drafter = families(0)["unrelated"]
    p, q = np.array(rejection.shape(target, 1.0)), np.array(rejection.shape(drafter, 1.0))
    generator = np.random.default_rng(9)
    draws = draws_needed(VOCAB, 0.02, 15)
    tokens = generator.choice(VOCAB, size=draws, p=q)
    if rule == "redraw from the target":
        accepted = generator.random(draws) * q[tokens] < p[tokens]
        tokens = np.where(accepted, tokens, generator.choice(VOCAB, size=draws, p=p))
    assert rejected({rule: p_value(np.bincount(tokens, minlength=VOCAB), p)}) == [rule]


def test_an_unusable_row_ends_the_draft_before_it(backend: SamplingBackend) -> None:
    logits = logits_of(3, 3)
    sure = np.full((3, VOCAB), -50.0)
    sure[:, 4] = 50.0
    for bad in (math.nan, math.inf):
        broken = sure.copy()
        broken[1, 2] = bad
        outcome = backend.decide([4, 4], broken, None, Sampling(), [0.5] * 3)
        assert (outcome.tokens, outcome.accepted, outcome.guard) == ((4,), 0, "non-finite logits")
        broken[0, 0] = bad
        outcome = backend.decide([4, 4], broken, None, Sampling(), [0.5] * 3)
        assert (outcome.tokens, outcome.accepted, outcome.guard) == ((), 0, "non-finite logits")
    assert backend.decide([], logits[:1], None, Sampling(), [0.1]).guard is None


def test_a_drafter_whose_distribution_is_no_number_leaves_the_draw_to_the_target(backend: SamplingBackend) -> None:
    p, chooser, count = rejection.shape(logits_of(4, 1)[0], 1.0), random.Random(3), 40
    tests, finals = ([chooser.random() for _ in range(count)] for _ in range(2))
    broken = np.full((count, VOCAB), math.nan)
    committed = backend.verify(np.tile(p, (count, 1)), broken, np.full(count, 2), np.array(tests), np.array(finals))
    assert committed.tolist() == [rejection.draw(p, uniform) for uniform in finals]


def test_draws_repeat_with_a_seed_and_differ_between_streams() -> None:
    assert Uniforms(3, "target").take(5) == Uniforms(3, "target").take(5)
    assert Uniforms(3, "target").take(5) != Uniforms(4, "target").take(5)
    assert Uniforms(3, "target").take(5) != Uniforms(3, "drafter").take(5)
