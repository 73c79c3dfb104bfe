"""A ratio over sittings against SciPy, and which sittings are a standing claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from bridge.launches.standing import Sitting, at_loads, missing_of, over_sittings, standing_ratio

SIX = (1.62, 1.67, 1.74, 1.76, 1.81, 1.86)
LOADS = (0.0, 0.0, 0.25, 0.25, 0.5, 0.5)


def sittings(ratios=SIX, loads=LOADS, apart_s=700.0):
    return [
        Sitting(number, math.log(ratio), number * apart_s, number * apart_s + 60.0, load)
        for number, (ratio, load) in enumerate(zip(ratios, loads, strict=True), 1)
    ]


def test_the_interval_is_students_over_sittings_and_the_prediction_is_that_of_one_more():
    logs = np.log(SIX)
    ratio = over_sittings(list(logs))
    low, high = scipy.stats.t.interval(0.96, 5, loc=logs.mean(), scale=scipy.stats.sem(logs))
    assert ratio.interval() == pytest.approx((math.exp(low), math.exp(high)))
    half = scipy.stats.t.ppf(0.98, 5) * logs.std(ddof=1) * math.sqrt(1 + 1 / 6)
    assert math.log(ratio.next_sitting().high / ratio.value) == pytest.approx(half)


def test_the_line_over_loads_is_least_squares_with_its_errors():
    logs = np.log(SIX)
    design = np.stack([np.ones(6), LOADS], axis=1)
    best, rest, *_ = np.linalg.lstsq(design, logs, rcond=None)
    cover = np.linalg.inv(design.T @ design) * rest[0] / 4
    for end, load in zip(at_loads(list(logs), LOADS, (0.0, 0.5)), (0.0, 0.5), strict=True):
        at = np.array([1.0, load])
        assert (end.log_ratio, end.df, end.load) == (pytest.approx(at @ best), 4, load)
        assert end.error == pytest.approx(math.sqrt(at @ cover @ at))
        assert end.next_error == pytest.approx(math.sqrt(at @ cover @ at + rest[0] / 4))


def test_loads_that_differ_are_two_ends_and_a_word_must_hold_at_both():
    ratio = standing_ratio(sittings())
    assert [end.load for end in ratio.ends] == [0.0, 0.5]
    bounds = ratio.bounds()
    assert bounds.low == min(end.interval()[0] for end in ratio.ends)
    assert bounds.high == max(end.interval()[1] for end in ratio.ends)
    assert ratio.span_s == pytest.approx(5 * 700.0 + 60.0)


@pytest.mark.parametrize("loads", [(0.1,) * 6, (0.1, 0.2, 0.1, 0.2, 0.1, 0.2), (None, 0.0, 0.5, 0.5, 0.5, 0.5)])
def test_loads_that_hardly_differ_or_were_not_seen_have_one_end(loads):
    assert [end.load for end in standing_ratio(sittings(loads=loads)).ends] == [None]


def test_too_few_sittings_have_no_spread():
    assert standing_ratio(sittings()[:1]) is None
    assert standing_ratio(sittings()[1:3]) is None  # two loads, two points: a line through both
    with pytest.raises(ValueError, match="at least 2"):
        over_sittings([0.1])
    with pytest.raises(ValueError, match="one load"):
        at_loads([0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [0.5])


def test_whole_sets_apart_carry_a_claim_and_others_say_what_is_missing():
    whole = sittings()
    assert missing_of(whole, 6) == ()
    assert "at least 6" in missing_of(whole[:5], 5)[0]
    assert missing_of(whole[:5], 6) == ("5 of the 6 sittings that the first request fixed are here",)
    assert "attempt 3 is missing" in " ".join(missing_of([*whole[:2], *whole[3:]], 6))
    assert "began 9.0 minutes after attempt 1" in missing_of(sittings(apart_s=540.0), 6)[0]
