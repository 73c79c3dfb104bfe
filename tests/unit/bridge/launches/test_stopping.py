"""When a run has enough launches, and how long a sample and a turn last."""

from __future__ import annotations

import pytest

from bridge.launches.estimate import Launch
from bridge.launches.stopping import BLOCKS, MODELS, PROCESS_PAIRS, LaunchRule, decide, seconds_needed, stopping_point


def scatter(count, by, blocks=1):
    return [Launch(by if index % 2 else -by, index % blocks) for index in range(count)]


def test_a_quiet_run_stops_after_eight_launches_and_after_ten_with_blocks():
    assert stopping_point(MODELS, scatter(20, 0.005)) == 8
    assert stopping_point(BLOCKS, scatter(20, 0.005, 5)) == 10
    assert stopping_point(PROCESS_PAIRS, scatter(20, 0.005)) == 8
    assert decide(MODELS, scatter(7, 0.0)).reason == "too few launches"
    assert decide(MODELS, scatter(8, 0.0)).reason == "width reached"


def test_a_wide_run_goes_on_to_the_last_launch_and_its_interval_stands():
    assert stopping_point(MODELS, scatter(19, 0.3)) is None
    last = decide(MODELS, scatter(20, 0.3))
    assert (last.stop, last.reason, last.launches) == (True, "most launches", 20)
    assert last.ratio.half_width() > MODELS.half_width
    assert stopping_point(PROCESS_PAIRS, scatter(239, 3.0)) is None
    assert stopping_point(PROCESS_PAIRS, scatter(240, 3.0)) == 240


def test_the_width_itself_stops_and_a_hair_more_does_not():
    wide = decide(MODELS, scatter(8, 0.03)).ratio.half_width()
    assert decide(LaunchRule(8, 20, half_width=wide), scatter(8, 0.03)).reason == "width reached"
    assert decide(LaunchRule(8, 20, half_width=wide * (1 - 1e-9)), scatter(8, 0.03)).reason == "still too wide"


def test_with_blocks_the_width_is_looked_at_after_whole_rotations_only():
    decisions = {count: decide(BLOCKS, scatter(count, 0.005, 5)) for count in (9, 10, 12, 14, 15)}
    assert [decisions[count].stop for count in (9, 10, 12, 14, 15)] == [False, True, False, False, True]
    assert decisions[9].reason == decisions[12].reason == "within a rotation"
    assert (decisions[12].launches, decisions[12].cut) == (10, 2)


def test_launches_that_left_nothing_count_against_the_most_and_move_the_look():
    assert decide(MODELS, scatter(17, 0.3), unseen=3).reason == "most launches"
    lost = [launch for index, launch in enumerate(scatter(13, 0.005, 5)) if index != 2]
    assert [decide(BLOCKS, lost[:count], 1).stop for count in (9, 10, 11, 12)] == [False, False, False, True]
    assert decide(BLOCKS, [], 2).reason == "too few launches"


def test_a_rule_that_no_whole_rotations_can_meet_is_refused():
    for least, most, blocks in ((8, 20, 5), (10, 18, 5), (5, 20, 5), (9, 8, 1), (8, 20, 0)):
        with pytest.raises(ValueError, match="no rule of whole rotations"):
            LaunchRule(least, most, blocks)
    with pytest.raises(ValueError, match="no rule"):
        LaunchRule(8, 20, half_width=0.0)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (LaunchRule(2, 2), "2 launches"),
        (MODELS, "8 to 20 launches, until the half-width is 3 %"),
        (LaunchRule(10, 20, 5, 0.025), "10 to 20 launches in rotations of 5, until the half-width is 2.5 %"),
    ],
)
def test_a_rule_says_itself_in_words(rule, words):
    assert str(rule) == words


def test_the_time_that_enough_launches_need_follows_from_those_that_ran():
    assert seconds_needed(MODELS, [50.0, 70.0]) == 480.0
    assert seconds_needed(MODELS, []) is None
