"""A model against its copy: what is read from the stamps, and what runs come to together."""

from __future__ import annotations

import random

import pytest

from benchmarks.studies.claims.equal_arms import campaign
from benchmarks.studies.claims.equal_arms.figures import figures, resampled
from benchmarks.studies.claims.equal_arms.program import ARMS, Arm
from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import Launch, over_launches
from bridge.launches.wording import effect
from bridge.records.turns import LaunchRecord, LaunchSeries, StopRule
from engine.types import Step
from tests.corpus.gate import launches


def row(logs, took_s=100.0):
    ratio = over_launches([Launch(value) for value in logs])
    return {"logs": logs, "launch_sd": ratio.sd, "said": effect(ShownInterval.of(ratio)), "took_s": took_s}


def scattered(runs, between, within, seed=1):
    rng = random.Random(seed)
    shifts = [rng.gauss(0.0, between) for _ in range(runs)]
    return [row([rng.gauss(shift, within) for _ in range(8)]) for shift in shifts]


def test_equal_runs_show_no_difference_and_the_count_has_a_bound():
    outcome = figures(scattered(40, 0.0, 0.01))
    assert (outcome.runs, outcome.wrong) == (40, 0)
    assert outcome.bound == pytest.approx(1 - 0.05 ** (1 / 40), abs=1e-6)
    assert outcome.between < 0.004
    assert outcome.launch_sd == pytest.approx(0.01, rel=0.1)
    assert outcome.resampled < 0.01


def test_what_runs_differ_by_beyond_their_launches_is_seen():
    outcome = figures(scattered(40, 0.05, 0.01))
    assert outcome.wrong > 10
    assert outcome.between == pytest.approx(0.05, rel=0.35)
    assert outcome.bound > outcome.wrong / 40
    assert outcome.resampled < outcome.wrong / 40
    assert figures(scattered(1, 0.0, 0.01)) is None
    assert resampled([[0.1] * 8] * 2, draws=20) == 1.0


def test_a_run_is_read_from_the_supervisors_stamps():
    logs = [0.02, -0.01, 0.01]
    records = [launches.launch("c", number, value) for number, value in enumerate([0.0, *logs])]
    for record in records:
        for turn in (*record["turns"], *record["solos"]):
            turn["arm"] = ARMS[launches.ARMS.index(turn["arm"])]
    plan = LaunchSeries(arms=ARMS, rule=StopRule(least=3, most=3))
    stamped = tuple(LaunchRecord.model_validate(record, strict=False) for record in records)
    result = campaign.result(plan, stamped)
    assert result["logs"] == pytest.approx(logs, abs=0.02)
    assert (result["turn_tokens"], result["slept_s"], result["pairs_a_launch"]) == (launches.TOKENS, 0.0, 6)
    assert result["low"] < result["ratio"] < result["high"]
    pairs = campaign.pair_ratios(ARMS, stamped[1])
    assert len(pairs) == launches.SAMPLES * launches.TURNS
    assert sum(pairs) / len(pairs) == pytest.approx(0.02, abs=0.02)


class Counting:
    """An engine whose decoder takes steps of three tokens."""

    class native:
        @staticmethod
        def decode(prompt, stopping, chunk):
            del prompt, chunk
            while stopping.remaining_tokens:
                emitted, stop = stopping.cut((1, 2, 3))
                yield Step(emitted, stop=stop)


def test_a_turn_ends_at_the_next_multiple_and_overshoot_does_not_add_up():
    arm = Arm(Counting())
    turns = []
    while not turns or not turns[-1][1]:
        turns.append(arm.advance((1,), 20, 8))
    assert turns == [(9, False), (9, False), (2, True)]
    assert arm.advance((1,), 20, None) == (20, True)


def test_there_are_forty_runs():
    assert len(set(campaign.cases())) == 40


@pytest.mark.slow
def test_a_short_run_takes_its_turns_from_the_real_supervisor():
    plan = LaunchSeries(arms=ARMS, rule=StopRule(least=2, most=2), solo_s=0.2)
    (row_of_run,) = campaign.run("trial", plan, prompts=2, tokens=16)
    assert len(row_of_run["logs"]) == 2
    assert row_of_run["turn_tokens"] > 0
    assert row_of_run["pairs_a_launch"] >= 1
