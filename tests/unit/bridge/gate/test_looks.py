"""A number that could be chosen from several has the interval of the chosen one, whatever it is a number of."""

from __future__ import annotations

import math

import pytest
import scipy

from bridge.gate.judging import judge
from tests.corpus.gate.breaks import honest

LOOKS = 4


def claimed(kind, name, looks=1):
    case = honest(kind)
    case.record["attempt"]["looks"] = looks
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    return next(claim for claim in verdict.claims if claim.id == name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("native", "baseline_tokens_per_s"),
        ("turned", "decode_speedup"),
        ("turned", "acceptance_length"),
        ("turned", "candidate_token"),
        ("needle_recall", "recall"),
        ("needle_recall", "recall_preserved"),
        ("kv_quantisation", "recall_affine8"),
        ("bounded_recall", "recall"),
    ],
)
def test_it_is_wider_and_says_out_of_how_many(kind, name):
    alone, chosen = claimed(kind, name), claimed(kind, name, LOOKS)
    assert chosen.value == alone.value
    assert chosen.interval[0] < alone.interval[0]
    assert "best of" not in alone.wording
    assert f", best of {LOOKS}" in chosen.wording


def half_width(claim):
    return math.log(claim.interval[1] / claim.interval[0]) / 2.0


def test_an_acceptance_length_is_corrected_by_students_quantile_over_prompts():
    alone, chosen = (claimed("turned", "acceptance_length", looks) for looks in (1, LOOKS))
    alone_t, chosen_t = scipy.stats.t.ppf([0.975, 1.0 - 0.025 / LOOKS], alone.n - 1)
    assert half_width(chosen) / half_width(alone) == pytest.approx(chosen_t / alone_t)


def test_a_rate_is_corrected_as_a_ratio_of_launches_is():
    """Ten launches of five blocks leave five degrees of freedom; t(.98) pays for stopping at a width."""
    alone, chosen = (claimed("native", "baseline_tokens_per_s", looks) for looks in (1, LOOKS))
    alone_t, chosen_t = scipy.stats.t.ppf([0.98, 1.0 - 0.02 / LOOKS], 5)
    assert half_width(chosen) / half_width(alone) == pytest.approx(chosen_t / alone_t)


def test_a_recall_is_corrected_in_the_tail_of_its_exact_bound():
    alone, chosen = (claimed("needle_recall", "recall", looks) for looks in (1, LOOKS))
    right = round(alone.value * alone.n)
    bounds = [scipy.stats.beta.ppf(tail, right, alone.n - right + 1) for tail in (0.05, 0.05 / LOOKS)]
    assert [alone.interval[0], chosen.interval[0]] == pytest.approx(bounds)
