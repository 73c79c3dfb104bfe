"""Solo stretches, the reference, the clock, several sittings, attempts, looks and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from bridge.launches.attempts import ShownInterval, too_many_unseen, weaker
from bridge.launches.checks import (
    HANDICAP_MOST,
    HANDICAP_UNKNOWN,
    handicap,
    handicap_at_most,
    is_clock,
    mean_interval,
    solo_disagrees,
    solo_unknown,
)
from bridge.launches.estimate import Estimate, Launch, over_launches
from bridge.launches.sittings import agree, pool
from bridge.launches.wording import RatioWords, effect, interval_text, scatter_of, sittings, too_few, wide


def sitting(rng, middle, sd=0.02, count=8, blocks=1):
    return [Launch(float(value), index % blocks) for index, value in enumerate(rng.normal(middle, sd, count))]


def test_solo_stretches_disagree_only_where_their_whole_interval_is_beyond_ten_per_cent():
    turns = [0.10, 0.12, 0.09, 0.11]
    assert not solo_disagrees([value + 0.05 for value in turns], turns)
    assert solo_disagrees([value + 0.15 for value in turns], turns)
    assert solo_disagrees([value - 0.15 for value in turns], turns)
    assert not solo_disagrees([0.9, -0.5, 0.6, 0.2], turns)
    assert not solo_disagrees([0.9], [0.1])
    with pytest.raises(ValueError, match="expected one a launch"):
        solo_disagrees([], [])


def test_the_interval_of_a_mean_equals_scipys():
    values = [0.1, 0.4, 0.2, 0.35]
    low, high = scipy.stats.t.interval(0.95, 3, loc=np.mean(values), scale=scipy.stats.sem(values))
    interval = mean_interval(values)
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_stretches_that_scatter_until_they_agree_with_anything_are_no_agreement():
    turns, scatter = [0.5] * 8, [1.2, -0.9, 0.8, -1.1, 1.0, -0.7, 0.9, -1.2]
    lied = [turn - 0.6 + noise for turn, noise in zip(turns, scatter, strict=True)]
    assert not solo_disagrees(lied, turns)
    assert solo_unknown(lied, turns)
    assert not solo_unknown([turn + noise / 5 for turn, noise in zip(turns, scatter, strict=True)], turns)
    slow = [math.exp(0.5 + noise) for noise in scatter]
    assert handicap(slow, [1.0] * 8) <= HANDICAP_MOST
    assert handicap_at_most(slow, [1.0] * 8) > HANDICAP_UNKNOWN
    assert handicap_at_most([math.exp(noise / 5) for noise in scatter], [1.0] * 8) < HANDICAP_UNKNOWN


def test_a_handicapped_baseline_is_found_and_an_honest_one_is_not():
    rng = np.random.default_rng(4)
    detected = sum(
        handicap(list(np.exp(rng.normal(math.log(1.1), 0.02, 8))), [1.0] * 8) > HANDICAP_MOST for _ in range(400)
    )
    refused = sum(handicap(list(np.exp(rng.normal(0.0, 0.02, 8))), [1.0] * 8) > HANDICAP_MOST for _ in range(400))
    assert detected / 400 > 0.97
    assert refused == 0
    assert handicap([1.2], [1.0]) == -math.inf
    for times in (([], []), ([0.0, 1.0], [1.0, 1.0])):
        with pytest.raises(ValueError, match="expected positive"):
            handicap(*times)


def test_times_that_repeat_are_no_clock():
    honest = [float(value) for value in np.random.default_rng(5).uniform(0.2, 0.4, 60)]
    assert is_clock(honest)
    assert is_clock([*honest[:58], honest[0], honest[1]])
    assert not is_clock([*honest[:56], *honest[:4]])
    assert not is_clock([0.25] * 12)
    assert is_clock([0.25, 0.25])  # a single repeat


def test_runs_that_agree_are_pooled_launch_by_launch():
    rng = np.random.default_rng(6)
    runs = [sitting(rng, 0.1) for _ in range(3)]
    pooled = pool(runs)
    assert (pooled.unit, pooled.sittings, pooled.launches) == ("launch", 3, 24)
    assert pooled.error == pytest.approx(over_launches([launch for run in runs for launch in run]).error)


def test_three_runs_that_differ_become_the_units_and_two_widen_the_interval():
    rng = np.random.default_rng(7)
    runs = [sitting(rng, middle, 0.01, 10, 5) for middle in (0.0, 0.1, 0.25)]
    pooled = pool(runs, 5)
    means = [np.mean([launch.log_ratio for launch in run]) for run in runs]
    assert (pooled.unit, pooled.df) == ("sitting", 2)
    assert pooled.error == pytest.approx(scipy.stats.sem(means))
    two = pool(runs[:2], 5)
    assert two.unit == "launch"
    assert two.error > 2 * over_launches(runs[0], 5).error


def test_the_test_of_equal_sittings_equals_scipys():
    rng = np.random.default_rng(8)
    for shift in (0.0, 0.01, 0.02, 0.03):
        runs = [sitting(rng, 0.0, 0.02), sitting(rng, shift, 0.02), sitting(rng, 2 * shift, 0.02, 12)]
        p = scipy.stats.f_oneway(*[[launch.log_ratio for launch in run] for run in runs]).pvalue
        assert (pool(runs).unit == "sitting") == (p < 0.05)


def test_cut_rotations_of_a_sitting_are_left_out_and_nothing_pools_to_nothing():
    rng = np.random.default_rng(9)
    runs = [sitting(rng, 0.1, 0.01, 13, 5), sitting(rng, 0.1, 0.01, 4, 5)]
    assert (pool(runs, 5).launches, pool(runs, 5).sittings) == (10, 1)
    assert pool([], 5) is None
    assert pool([sitting(rng, 0.0, count=1)]) is None


def test_two_runs_agree_within_the_root_of_their_squared_half_widths():
    estimate, other = Estimate(0.10, 0.01, 8), Estimate(0.10, 0.01, 8)
    reach = math.hypot(estimate.half_width(), other.half_width())
    assert agree(estimate, Estimate(0.10 + reach * 0.999, 0.01, 8))
    assert not agree(estimate, Estimate(0.10 + reach * 1.001, 0.01, 8))


def test_a_claim_is_the_weaker_of_with_and_without_cut_runs():
    every, whole = ShownInterval(1.10, 1.05, 1.16), ShownInterval(1.06, 1.01, 1.12)
    assert effect(every) == "faster"
    assert effect(weaker(every, whole)) == "not slower (5 % margin)"
    assert effect(weaker(whole, every)) == "not slower (5 % margin)"
    assert effect(weaker(every, ShownInterval(0.9, 0.85, 0.95))) == "no difference shown"
    assert effect(weaker(every, ShownInterval(0.9, 0.75, 0.95))) == "not measured well enough"
    assert weaker(every, None) == every


def test_one_cancelled_run_bars_nothing_and_three_do():
    assert [too_many_unseen(count) for count in (0, 1, 2, 3)] == [False, False, False, True]


def test_a_ratio_chosen_from_several_has_a_wider_interval_and_says_so():
    ratio = over_launches(sitting(np.random.default_rng(10), 0.05))
    alone, best = ShownInterval.of(ratio), ShownInterval.of(ratio, 5)
    assert best.low < alone.low < alone.high < best.high
    words = RatioWords(best, (0.05,) * 8, 1, 0.25, looks=5)
    assert words.number.endswith("95 %, 8 launches (1.05x to 1.05x, median 1.05x), best of 5")


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.0201, 1.04, "faster"),
        (1.02, 1.08, "not slower (5 % margin)"),
        (0.90, 0.98, "slower"),
        (0.90, 1 / 1.02, "no difference shown"),
        (0.95, 1.05, "equivalent within 5 %"),
        (1.03, 1.05, "faster"),
        (0.95, 1.051, "not slower (5 % margin)"),
        (0.949, 1.05, "no difference shown"),
        (0.80, 1.20, "no difference shown"),
        (0.80, 1.21, "not measured well enough"),
        (1.03, 9.0, "faster"),
    ],
)
def test_one_interval_decides_every_word(low, high, word):
    assert effect(ShownInterval(1.0, low, high)) == word


def test_sentences_say_what_a_number_rests_on():
    bounds = ShownInterval(1.1, 1.05, 1.155)
    assert interval_text(bounds) == "1.10x [1.05, 1.16] 95 %"
    assert interval_text(ShownInterval(1.1, 1.0967, 1.1034)) == "1.100x [1.096, 1.104] 95 %"
    assert interval_text(ShownInterval(1.76, 1.7451, 1.7749)) == "1.76x [1.74, 1.78] 95 %"
    assert interval_text(ShownInterval(1.05, 1.0199, 1.08)) == "1.05x [1.01, 1.08] 95 %"
    assert wide(bounds, 0.03) == "half-width 4.8 %, not 3 %"
    assert wide(bounds, 0.05) == ""
    assert too_few(3, 8, 620.0) == "3 launches, a claim needs 8: about 11 minutes on this machine"
    assert sittings(1, 0.25) == "in one sitting, 25 % of the machine used by others"
    assert sittings(2, 0.25) == "in 2 sittings, 25 % of the machine used by others in the last"
    assert sittings(3, None, units=True) == "over 3 sittings as units, an unseen load in the last"
    assert too_few(1, 8, None) == "1 launch, a claim needs 8"
    assert too_few(0, 8, None) == "0 launches, a claim needs 8"
    assert too_few(0, 10, None, 4) == "4 launches, none of them in a whole rotation, a claim needs 10"
    assert too_few(5, 10, None, 7) == "7 launches, 5 of them in a whole rotation, a claim needs 10"


def test_a_few_launches_are_said_one_by_one_and_have_neither_interval_nor_word():
    few = RatioWords(ShownInterval(1.45, 0.02, 93.7), (math.log(1.1), math.log(1.9), math.log(1.4)), 1, 0.28, least=8)
    assert few.number == "1.45x (launches 1.10x, 1.90x, 1.40x; a claim takes 8)"
    assert (few.interval, few.effect, few.stops) == (None, "too few launches for a word", None)
    assert few.said == few.number


def test_a_ratio_far_below_one_is_never_printed_as_nothing():
    slow = RatioWords(ShownInterval(0.004, 0.0039, 0.0041), (math.log(0.004),) * 8, 1, 0.25)
    assert slow.said.startswith("slower: 0.0040x [0.0039, 0.0041] 95 %, 8 launches (0.004x to 0.004x, median 0.004x)")
    few = RatioWords(ShownInterval(0.004, 0.001, 0.02), (math.log(0.003), math.log(0.005)), 1, 0.25, least=8)
    assert few.number == "0.004x (launches 0.003x, 0.005x; a claim takes 8)"
    assert interval_text(ShownInterval(4e-5, 3.8e-5, 4.2e-5)) == "0.000040x [0.000038, 0.000042] 95 %"
    assert interval_text(ShownInterval(4e-5, 1e-7, 0.01)) == "0.00004x [0.00000, 0.01000] 95 %"
    assert interval_text(ShownInterval(0.05, 0.02, 0.12)) == "0.05x [0.02, 0.12] 95 %"


def test_an_interval_that_says_nothing_is_no_claim():
    wide_words = RatioWords(ShownInterval(1.31, 0.70, 2.44), (0.27,) * 8, 1, 0.0)
    assert wide_words.said.startswith("not measured well enough: 1.31x [0.70, 2.44] 95 %, 8 launches")
    assert wide_words.stops == "not measured well enough: no word holds between 0.70x and 2.44x"
    slow = RatioWords(ShownInterval(0.09, 0.004, 2.0), (math.log(0.09),) * 8, 1, 0.0)
    assert slow.stops == "not measured well enough: no word holds between 0.004x and 2.00x"
    assert RatioWords(ShownInterval(1.01, 0.90, 1.13), (0.01,) * 8, 1, 0.0).stops is None


def test_launches_that_lie_apart_are_counted():
    logs = [0.50, 0.51, 0.49, 0.50, 0.52, 0.48, 0.50, 0.10]
    scatter = scatter_of(logs)
    assert (round(scatter.least, 3), round(scatter.median, 3), scatter.outlying) == (1.105, 1.649, 1)
    assert str(scatter) == "1.11x to 1.68x, median 1.65x, 1 of them outlying"
    assert scatter_of([0.1, 0.1, 0.1, 0.9]).outlying == 0  # without a spread nothing is far
