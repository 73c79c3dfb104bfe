"""The own Clopper-Pearson bounds equal scipy's."""

from __future__ import annotations

import pytest
import scipy

from engine.cards.binomial import clopper_pearson


@pytest.mark.parametrize(("successes", "trials"), [(0, 25), (25, 25), (96, 100), (59, 61), (1, 3), (50, 60)])
def test_bounds_equal_scipy(successes, trials):
    expected = scipy.stats.binomtest(successes, trials).proportion_ci(0.95, method="exact")
    got = clopper_pearson(successes, trials)
    assert got.lower == pytest.approx(expected.low, abs=1e-9)
    assert got.upper == pytest.approx(expected.high, abs=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 3), (4, 3)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="expected 0 <= successes"):
        clopper_pearson(successes, trials)
