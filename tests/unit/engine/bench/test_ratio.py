from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.gate.stats.ratio import paired_ratio as gate_ratio
from engine.errors import UsageError
from engine.measurement.ratio import paired_ratio, t_quantile


@given(st.sampled_from([0.6, 0.9, 0.95, 0.975, 0.995]), st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_t_quantiles_are_those_of_scipy(level: float, freedom: int) -> None:
    assert t_quantile(level, freedom) == pytest.approx(scipy.stats.t.ppf(level, freedom), rel=1e-8)


def test_the_interval_is_the_one_the_gate_computes() -> None:
    generator = np.random.default_rng(0)
    ours = generator.lognormal(sigma=0.3, size=12).tolist()
    theirs = [value * factor for value, factor in zip(ours, generator.lognormal(0.2, 0.1, 12), strict=True)]
    ratio, judged = paired_ratio(theirs, ours), gate_ratio(theirs, ours)
    assert (ratio.value, ratio.n) == (pytest.approx(judged.value), judged.n)
    assert (ratio.low, ratio.high) == pytest.approx(judged.interval(0.95), rel=1e-9)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        prompts = generator.lognormal(sigma=0.5, size=12)
        slow = prompts * 1.25 * generator.lognormal(sigma=0.1, size=12)
        ratio = paired_ratio(slow.tolist(), prompts.tolist())
        covered += ratio.low <= 1.25 * float(np.exp(0.005)) <= ratio.high
    assert scipy.stats.binom.sf(covered - 1, 400, 0.95) > 1e-3
    assert scipy.stats.binom.cdf(covered, 400, 0.95) > 1e-3


@pytest.mark.parametrize(
    ("numerators", "denominators"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([0.0, 0.0], [1.0, 1.0])]
)
def test_a_ratio_of_too_little_is_refused(numerators: list[float], denominators: list[float]) -> None:
    with pytest.raises(UsageError):
        paired_ratio(numerators, denominators)
