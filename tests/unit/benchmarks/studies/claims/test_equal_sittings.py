"""Forty sittings of a program and its copy, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.studies.claims import equal_sittings
from bridge.records.turns import StopRule


def entries(middles):
    rng = np.random.default_rng(7)
    return [
        {
            "rows": [
                {
                    "logs": [float(middle + error) for error in rng.normal(0.0, 0.01, 5)],
                    "began_s": 60.0 * place,
                    "ended_s": 60.0 * place + 50.0,
                }
            ]
        }
        for place, middle in enumerate(middles)
    ]


def test_equal_programs_say_nothing_and_a_difference_is_seen():
    lines = equal_sittings.summary(entries([0.0] * 40))
    assert ": 5 equivalent within 5 %; half-widths " in lines[1]
    assert lines[2].endswith(" of 32 sittings lie where the 8 before them predict")
    assert int(lines[2].split()[0]) >= 28
    apart = equal_sittings.summary(entries([0.3] * 8))
    assert apart[0] == "8 of 8 sittings exclude 1 by their five launches alone"
    assert "1 of 1 claims of 8 sittings exclude 1: 1 faster" in apart[1]
    assert len(apart) == 2


def test_a_sitting_that_the_others_did_not_predict_is_counted():
    assert equal_sittings.summary(entries([0.0] * 8 + [0.3]))[2].startswith("0 of 1 sittings")


def test_there_are_forty_sittings():
    assert len(set(equal_sittings.cases())) == 40


@pytest.mark.slow
def test_a_short_sitting_has_its_launches_from_the_real_supervisor():
    plan = equal_sittings.PLAN.evolve(rule=StopRule(least=2, most=2))
    (row,) = equal_sittings.run("trial", plan, numbers=200_000)
    assert len(row["logs"]) == 2
    assert row["began_s"] < row["ended_s"]
