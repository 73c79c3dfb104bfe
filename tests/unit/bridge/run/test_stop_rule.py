"""The stop rule decides from stamps alone."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from bridge.records.turns import AskedWord, LaunchRecord, LaunchSeries, StopRule, Turn
from bridge.run.stop_rule import decide, log_ratio

ARMS = ("baseline", "candidate")


def launch(
    number: int, baseline_s: float, candidate_s: float = 1.0, *, finished: bool = True, block: int = 0
) -> LaunchRecord:
    turns = tuple(
        Turn(number=n, arm=arm, sample=0, go_s=0.0, done_s=spent_s, tokens=8, over=finished)
        for n, (arm, spent_s) in enumerate(zip(ARMS, (baseline_s, candidate_s), strict=True))
    )
    return LaunchRecord(
        command="study", number=number, block=block, nonce="0" * 64, turn_tokens=8, started_s=0.0, ready_s=0.0,
        ended_s=9.0, slept_s=0.0, turns=turns,
    )  # fmt: skip


def plan(**rule) -> LaunchSeries:
    return LaunchSeries(arms=ARMS, rule=StopRule(**rule))


def test_the_first_launch_never_counts():
    assert not decide(plan(least=2, most=3), [launch(0, 5.0), launch(1, 2.0)]).stop
    assert decide(plan(least=2, most=3), [launch(0, 5.0), launch(1, 2.0), launch(2, 2.0)]).stop


def test_a_wide_interval_goes_on_to_the_cap():
    wide = [launch(number, 1.0 + number % 2) for number in range(4)]

    assert not decide(plan(least=2, most=4), wide).stop
    assert decide(plan(least=2, most=3), wide).why == "most launches"
    assert decide(plan(least=2, most=9, allowed_s=10.0), wide, 10.0).why == "the time allowed is over"


def test_blocks_are_looked_at_after_whole_rotations_with_their_means_removed():
    # Two blocks far apart, launches of one block alike: narrow once the means are out.
    sizes = [(4.0, 1), (2.0, 0), (4.0, 1), (2.0, 0), (4.0, 1), (2.0, 0)]
    records = [launch(number, spent_s, block=block) for number, (spent_s, block) in enumerate(sizes)]

    assert decide(plan(least=4, most=20, blocks=2), records).why == "within a rotation"  # five count
    assert decide(plan(least=4, most=20, blocks=2), records[:5]).stop
    unblocked = [record.evolve(block=0) for record in records[:5]]
    assert not decide(plan(least=4, most=20), unblocked).stop


def test_a_rotation_that_the_time_allowed_would_cut_does_not_begin():
    # Launch 0 began at 100 s on the clock and took 20 s; every launch after it 10 s with its reference.
    def after(count: int, allowed_s: float):
        records = [
            launch(number, 1.0 + number % 3, block=(number - 1) % 5 if number else 0).evolve(
                started_s=100.0 + (10.0 * number + 10.0 if number else 0.0)
            )
            for number in range(count + 1)
        ]
        rule = {"least": 10, "most": 20, "blocks": 5, "half_width": 0.001, "allowed_s": allowed_s}
        return decide(plan(**rule), records, 20.0 + 10.0 * count)

    # After five, 70 s are over; five more would begin after 70, 80, 90, 100 and 110 s.
    assert not after(5, 110.5).stop
    assert after(5, 110.0).why == "a further rotation does not fit: its last launch would begin after 110 s"
    assert not after(4, 60.5).stop  # what has begun goes on while there is time
    assert after(4, 60.0).why == "the time allowed is over"
    assert not after(0, 21.0).stop  # nothing is known yet
    assert after(10, 160.0).stop
    assert not after(10, 160.5).stop


def test_without_blocks_a_launch_begins_while_there_is_time():
    wide = [launch(number, 1.0 + number % 2).evolve(started_s=10.0 * number) for number in range(4)]
    assert not decide(plan(least=2, most=9, allowed_s=41.0), wide, 40.0).stop


def test_a_rule_without_whole_rotations_is_refused():
    with pytest.raises(ValidationError, match="whole rotations"):
        plan(least=8, most=20, blocks=5)


def test_a_launch_without_a_finished_pair_has_no_ratio():
    assert log_ratio(plan(), launch(1, 2.0, finished=False)) is None
    assert log_ratio(plan(), launch(1, 2.0)) == pytest.approx(math.log(2))


def test_a_cut_calibration_ends_the_series():
    cut = launch(0, 2.0).evolve(cut="it ended before its last turn")

    assert decide(plan(), [cut]).stop
    assert not decide(plan(), [launch(0, 2.0), launch(1, 2.0).evolve(cut="it was killed")]).stop


def asking(word: str, margin: float = 1.02) -> LaunchSeries:
    return plan(least=8, most=20).evolve(asks=AskedWord(word=word, margin=margin))


def alternating(count: int, middle: float, apart: float):
    return [launch(number, middle + (apart if number % 2 else -apart)) for number in range(count + 1)]


def test_a_word_is_answered_at_a_look_and_never_by_a_width():
    narrow = alternating(8, 1.02, 0.001)  # at the margin itself, and far narrower than three percent
    assert decide(plan(least=8, most=20), narrow).why == "width reached"
    assert (decide(asking("faster"), narrow).stop, decide(asking("faster"), narrow).yes) == (False, None)
    ended = decide(asking("faster"), alternating(20, 1.02, 0.001))
    assert (ended.stop, ended.yes) == (True, False)


@pytest.mark.parametrize(("word", "yes"), [("faster", True), ("slower", False)])
def test_what_is_plain_is_answered_at_the_first_look(word, yes):
    assert not decide(asking(word), alternating(7, 1.5, 0.01)).stop
    decision = decide(asking(word), alternating(8, 1.5, 0.01))
    assert (decision.stop, decision.yes) == (True, yes)
    assert decision.why == f"{'' if yes else 'not '}{word}, as a look at 8 launches answers"


def test_slower_by_more_than_a_margin_is_asked_with_that_margin():
    records = alternating(8, 0.97, 0.001)
    assert decide(asking("slower"), records).yes
    assert decide(asking("slower", 1.0 / 0.95), records).yes is False


def test_a_run_whose_load_is_drawn_goes_on_to_its_number_of_launches_however_narrow():
    loads = plan(least=8, most=20).evolve(load="drawn")
    assert not decide(loads, alternating(10, 1.5, 0.001)).stop
    assert decide(loads, alternating(20, 1.5, 0.001)).why == "most launches"
