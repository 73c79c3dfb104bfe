"""The stop rule decides from stamps alone, and its quantile is the gate's."""

from __future__ import annotations

import math

import pytest

from bridge.gate.stats.distributions import t_quantile as gates_t_quantile
from bridge.records import LaunchRecord, LaunchSeries, StopRule, Turn
from bridge.run.stop_rule import decide, half_width, log_ratio, t_quantile

ARMS = ("baseline", "candidate")


def launch(number: int, baseline_s: float, candidate_s: float = 1.0, *, finished: bool = True) -> LaunchRecord:
    turns = tuple(
        Turn(number=n, arm=arm, sample=0, go_s=0.0, done_s=spent_s, tokens=8, over=finished)
        for n, (arm, spent_s) in enumerate(zip(ARMS, (baseline_s, candidate_s), strict=True))
    )
    return LaunchRecord(
        command="study", number=number, block=0, nonce="0" * 64, turn_tokens=8, started_s=0.0, ready_s=0.0,
        ended_s=9.0, slept_s=0.0, turns=turns,
    )  # fmt: skip


def plan(**rule) -> LaunchSeries:
    return LaunchSeries(arms=ARMS, rule=StopRule(**rule))


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 10, 19, 239])
@pytest.mark.parametrize("p", [0.6, 0.95, 0.98, 0.999])
def test_the_quantile_is_the_gates(p, freedom):
    assert t_quantile(p, freedom) == pytest.approx(gates_t_quantile(p, freedom), rel=1e-9)


def test_the_first_launch_never_counts():
    assert not decide(plan(least=2, most=3), [launch(0, 5.0), launch(1, 2.0)]).stop
    assert decide(plan(least=2, most=3), [launch(0, 5.0), launch(1, 2.0), launch(2, 2.0)]).stop


def test_a_wide_interval_goes_on_to_the_cap():
    wide = [launch(number, 1.0 + number % 2) for number in range(4)]

    assert not decide(plan(least=2, most=4), wide).stop
    assert decide(plan(least=2, most=3), wide).why == "the most launches there may be"
    assert decide(plan(least=2, most=9, allowed_s=10.0), wide, 10.0).why == "the time allowed is over"


def test_blocks_are_looked_at_after_whole_rotations_with_their_means_removed():
    # Two blocks far apart, launches of one block alike: narrow once the means are out.
    found = [launch(number, 2.0 if number % 2 else 4.0) for number in range(6)]

    assert not decide(plan(least=4, most=20, blocks=2), found).stop  # five count: no whole rotation
    assert decide(plan(least=4, most=20, blocks=2), found[:5]).stop
    assert not decide(plan(least=4, most=20), found[:5]).stop


def test_the_half_width_of_a_worked_case():
    ratios = [0.10, 0.14, 0.12, 0.08]
    s = math.sqrt(sum((ratio - 0.11) ** 2 for ratio in ratios) / 3)

    assert half_width(ratios, 1, 0.98) == pytest.approx(3.4819 * s / 2, rel=1e-4)


def test_a_launch_without_a_finished_pair_has_no_ratio():
    assert log_ratio(plan(), launch(1, 2.0, finished=False)) is None
    assert log_ratio(plan(), launch(1, 2.0)) == pytest.approx(math.log(2))


def test_a_cut_calibration_ends_the_series():
    cut = launch(0, 2.0).evolve(cut="it ended before its last turn")

    assert decide(plan(), [cut]).stop
    assert not decide(plan(), [launch(0, 2.0), launch(1, 2.0).evolve(cut="it was killed")]).stop
