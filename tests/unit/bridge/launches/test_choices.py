"""What a number could have been chosen from, what is answered after three looks, and what is tolerated in all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy

from bridge.launches.answers import LOOKS, answer
from bridge.launches.attempts import too_many_doubtful
from bridge.launches.checks import BUDGET_MOST, favour
from bridge.launches.estimate import Launch
from bridge.launches.families import Choice, Question, choose
from bridge.launches.stopping import BLOCKS, MODELS

OWN = Question("sweep", "loss", "", "x=7", "a1")


def test_the_cells_of_a_sweep_are_looks_at_one_another_medians_too():
    cells = [replace(OWN, cell=f"x={value}") for value in range(1, 9)]
    assert choose(cells, OWN) == Choice(8, 1, 0)
    assert choose([OWN, OWN], OWN) == Choice(1, 1, 0)


@pytest.mark.parametrize("other", [{"subject": "train"}, {"metric": "size"}, {"baseline": "base.py"}])
def test_questions_of_other_families_are_named_and_widen_nothing(other):
    assert choose([replace(OWN, **other, cell=str(cell)) for cell in range(40)], OWN) == Choice(1, 1, 40)


def test_versions_that_follow_each_other_widen_only_what_is_said_to_be_their_best():
    edits = [replace(OWN, version=f"a{edit}") for edit in range(5)]
    assert choose(edits, OWN) == Choice(1, 5, 0)
    assert choose(edits, OWN, best=True) == Choice(5, 5, 0)


def launches(logs, blocks=1):
    return [Launch(float(value), index % blocks) for index, value in enumerate(logs)]


@pytest.mark.parametrize("rule", [MODELS, BLOCKS])
def test_a_question_is_answered_at_looks_only_and_at_a_third_of_the_error(rule):
    first = LOOKS[rule][0]
    logs = np.random.default_rng(4).normal(-0.2, 0.02, 20)
    assert answer(rule, launches(logs[: first - 1], rule.blocks), "slower") is None
    assert answer(rule, launches(logs[:first], rule.blocks), "slower") is True
    assert answer(rule, launches(logs[:first], rule.blocks), "faster") is False


def test_what_is_open_at_the_last_look_is_no_and_what_would_do_at_one_look_does_not_at_three():
    spread = [1.0, -1.0] * 4
    sd = np.std(spread, ddof=1) / math.sqrt(8)
    middle = -math.log(1.02) - 0.01 * sd * (scipy.stats.t.ppf(1 - 0.02, 7) + scipy.stats.t.ppf(1 - 0.02 / 3, 7)) / 2
    logs = [middle + 0.01 * step for step in spread]
    assert answer(MODELS, launches(logs), "slower") is None
    wide = launches([0.5 if place % 2 else -0.5 for place in range(20)])
    assert (answer(MODELS, wide[:19], "slower"), answer(MODELS, wide, "slower")) == (None, False)


def test_the_third_attempt_that_lost_a_premise_bars_the_claim():
    assert [too_many_doubtful(count) for count in (0, 2, 3)] == [False, False, True]


def test_what_is_tolerated_adds_up_launch_by_launch():
    rng = np.random.default_rng(5)
    noise = rng.normal(0.0, 0.01, (2, 8))
    handicaps, gains, hidden = 0.03 + noise[0], 0.03 + noise[1], [0.03] * 8
    total = handicaps + gains + np.log1p(hidden)
    low = total.mean() - scipy.stats.t.ppf(0.95, 7) * scipy.stats.sem(total)
    assert favour(handicaps, gains, hidden) == pytest.approx(low)
    assert favour(handicaps, gains, hidden) > BUDGET_MOST
    assert max(favour(part, [0.0] * 8, [0.0] * 8) for part in (handicaps, gains)) < BUDGET_MOST


def test_a_quick_first_turn_excuses_nothing():
    slow = [0.1] * 8
    assert favour(slow, [0.0] * 8, [-0.5] * 8) == pytest.approx(0.1)
    assert favour([0.1], [0.0], [0.0]) == -math.inf
