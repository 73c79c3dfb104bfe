"""The gate's statistics against a second, independent path: SciPy, bootstrap-t, direct likelihood, simulation."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.gate.claims.percentiles import median_interval
from bridge.gate.stats.binomial import paired_difference_lower, preserved, rate_lower, rate_upper, sign_test
from bridge.gate.stats.multiple import holm
from bridge.gate.stats.ratio import paired_ratio
from bridge.gate.stats.trend import line
from bridge.launches.distributions import beta_cdf, beta_quantile, t_cdf, t_quantile


@given(st.floats(0.001, 0.999), st.floats(0.5, 200), st.floats(0.5, 200))
@settings(max_examples=60, deadline=None)
def test_beta_functions_equal_scipys(x, a, b):
    assert beta_cdf(x, a, b) == pytest.approx(scipy.stats.beta.cdf(x, a, b), abs=1e-10)
    assert beta_quantile(x, a, b) == pytest.approx(scipy.stats.beta.ppf(x, a, b), rel=1e-6, abs=1e-9)


@given(st.floats(0.001, 0.999), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_students_t_equals_scipys(p, df):
    assert t_quantile(p, df) == pytest.approx(scipy.stats.t.ppf(p, df), rel=1e-8, abs=1e-8)
    assert t_cdf(scipy.stats.t.ppf(p, df), df) == pytest.approx(p, abs=1e-10)


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5, 6], [-1, 2, 3, -4, 5, 6, 7, 8], [-1] * 9 + [2, 3]])
def test_the_sign_test_equals_scipys(values):
    more = sum(value > 0 for value in values)
    assert sign_test(values) == pytest.approx(scipy.stats.binomtest(more, len(values)).pvalue)
    assert sign_test([0.0] * 5 + [1.0]) == 1.0


def test_more_values_than_a_power_of_two_fits_into_a_float_have_a_median_too():
    n = 1200
    assert sign_test([1.0] * 640 + [-1.0] * 560) == pytest.approx(scipy.stats.binomtest(640, n).pvalue)
    dropped = max(count for count in range(n // 2) if scipy.stats.binom.cdf(count, n, 0.5) <= 0.025)
    low, high, confidence = median_interval([float(place) for place in range(n)])
    assert (low, high) == (dropped, n - 1 - dropped)
    assert confidence == pytest.approx(1.0 - 2.0 * scipy.stats.binom.cdf(dropped, n, 0.5))


def _data(seed, n, sigma, ratio=1.0):
    rng = np.random.default_rng(seed)
    work = rng.lognormal(0.0, 0.3, n)
    return list(ratio * work * rng.lognormal(0.0, sigma, n)), list(work * rng.lognormal(0.0, sigma, n))


@pytest.mark.parametrize("seed", range(4))
def test_the_ratio_interval_agrees_with_bootstrap_t(seed):
    top, bottom = (np.array(side) for side in _data(seed, 60, 0.05, 1.2))
    estimate = paired_ratio(list(top), list(bottom))
    rng = np.random.default_rng(seed + 100)
    pivots = []
    for _ in range(2000):
        pick = rng.integers(0, 60, 60)
        a, b = top[pick], bottom[pick]
        parts = a / a.mean() - b / b.mean()
        error = parts.std(ddof=1) / math.sqrt(60)
        pivots.append((math.log(a.mean() / b.mean()) - estimate.log_ratio) / error)
    low, high = (estimate.log_ratio - q * estimate.error for q in np.quantile(pivots, [0.975, 0.025]))
    ours = [math.log(bound) for bound in estimate.interval(0.95)]
    assert ours == pytest.approx([low, high], abs=0.35 * estimate.half_width(0.95))


@pytest.mark.parametrize(("n", "sigma"), [(6, 0.05), (12, 0.1), (60, 0.05)])
def test_the_ratio_interval_covers_what_it_says(n, sigma):
    draws, hits = 1500, 0
    for seed in range(draws):
        low, high = paired_ratio(*_data(seed, n, sigma, 1.1)).interval(0.95)
        hits += low <= 1.1 <= high
    # Five standard errors of a share of .95 around .95, and one point for the approximation at n = 6.
    assert abs(hits / draws - 0.95) < 5 * math.sqrt(0.95 * 0.05 / draws) + 0.01


@given(st.integers(2, 40), st.floats(0.2, 5.0), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_common_factor_moves_the_ratio_by_itself(n, factor, rng):
    top, bottom = [rng.uniform(1, 2) for _ in range(n)], [rng.uniform(1, 2) for _ in range(n)]
    before, after = paired_ratio(top, bottom), paired_ratio([factor * value for value in top], bottom)
    assert after.value == pytest.approx(factor * before.value)
    assert after.error == pytest.approx(before.error)


@given(st.integers(1, 120), st.data())
@settings(max_examples=50, deadline=None)
def test_clopper_pearson_equals_scipys_exact_interval(n, data):
    successes = data.draw(st.integers(0, n))
    low = scipy.stats.binomtest(successes, n, alternative="greater").proportion_ci(0.95, "exact").low
    high = scipy.stats.binomtest(successes, n, alternative="less").proportion_ci(0.95, "exact").high
    assert rate_lower(successes, n, 0.95) == pytest.approx(low, abs=1e-8)
    assert rate_upper(successes, n, 0.95) == pytest.approx(high, abs=1e-8)


@pytest.mark.parametrize(("right", "n"), [(29, 29), (59, 61), (96, 100)])
def test_the_smallest_samples_that_show_ninety_per_cent(right, n):
    assert rate_lower(right, n, 0.95) >= 0.90
    assert rate_lower(right - 1, n, 0.95) < 0.90


def _score_bound(gained, lost, n, z):
    """Return Tango's bound by maximising the trinomial likelihood numerically at every difference."""

    def statistic(difference):
        def negative(q):  # q is the share of losses; gains are q + difference
            p = q + difference
            rest = 1 - p - q
            if min(p, q, rest) <= 0:
                return 1e9
            return -(gained * math.log(p) + lost * math.log(q) + (n - gained - lost) * math.log(rest))

        low, high = max(1e-12, -difference + 1e-12), (1 - difference) / 2 - 1e-12
        q = scipy.optimize.minimize_scalar(negative, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
        variance = n * (2 * q + difference - difference**2)
        return (gained - lost - n * difference) / math.sqrt(variance) - z

    return scipy.optimize.brentq(statistic, -0.9, (gained - lost) / n - 1e-9)


@pytest.mark.parametrize(("gained", "lost", "n"), [(1, 1, 125), (3, 3, 150), (6, 6, 200), (2, 5, 80), (4, 1, 60)])
def test_tangos_bound_equals_a_numeric_likelihood(gained, lost, n):
    ours = paired_difference_lower(gained, lost, n, 0.95)
    assert ours == pytest.approx(_score_bound(gained, lost, n, scipy.stats.norm.ppf(0.95)), abs=1e-4)


def test_tangos_published_example():
    # Tango (1998): 44 pairs, 1 gained and 0 lost; 95 % two-sided interval (-0.0600, 0.1179) of the difference.
    assert paired_difference_lower(1, 0, 44, 0.975) == pytest.approx(-0.0600, abs=1.5e-3)


def test_recall_is_preserved_within_five_points_at_the_designs_sizes():
    for n, discordant in ((125, 0.02), (150, 0.04), (200, 0.06)):
        each = round(n * discordant / 2)
        assert paired_difference_lower(each, each, n, 0.95) > -0.05


def test_a_line_equals_scipys():
    rng = np.random.default_rng(3)
    x = list(np.linspace(0, 1, 40))
    y = list(0.3 * np.array(x) + rng.normal(0, 0.2, 40))
    ours, theirs = line(x, y), scipy.stats.linregress(x, y)
    assert (ours.slope, ours.error) == pytest.approx((theirs.slope, theirs.stderr))
    assert ours.p_value == pytest.approx(theirs.pvalue)


def test_holm_steps_down():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 1), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_holm_is_between_the_plain_value_and_bonferroni(p_values):
    for name, value in holm(p_values).items():
        assert p_values[name] <= value <= min(1.0, len(p_values) * p_values[name]) or value >= p_values[name]
        assert value <= 1.0


@pytest.mark.parametrize("bad", [([], []), ([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([0.0, 0.0], [1.0, 1.0])])
def test_a_ratio_of_nothing_is_refused(bad):
    with pytest.raises(ValueError, match=r"units|positive"):
        paired_ratio(*bad)


def test_balanced_random_order_survives_a_first_position_effect():
    """Granted differences stay near the nominal rate although whoever runs first is 5 % slower."""
    rng, granted = random.Random(7), 0
    for _ in range(400):
        top, bottom = [], []
        for index in range(60):
            first = 1.05 if index % 2 else 1.0
            work = rng.lognormvariate(0.0, 0.2)
            top.append(work * first * rng.lognormvariate(0.0, 0.03))
            bottom.append(work * (2.05 - first) * rng.lognormvariate(0.0, 0.03))
        low, high = paired_ratio(top, bottom).interval(0.95)
        granted += low > 1.02 or high < 1 / 1.02
    assert granted / 400 < 0.03


def test_nothing_is_preserved_of_a_reference_that_finds_little():
    lower = paired_difference_lower(0, 0, 60, 0.95)
    assert lower > -0.05
    assert not preserved(0, 60, lower, 0.05)
    assert not preserved(53, 60, lower, 0.05)
    assert preserved(54, 60, lower, 0.05)
    assert not preserved(60, 60, -0.05, 0.05)
    assert not preserved(0, 0, 0.0, 0.05)
