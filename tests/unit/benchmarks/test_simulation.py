"""The simulation uses the product's rule, and its noises are what they are called."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.simulation import campaign
from benchmarks.simulation.noises import NOISES, errors
from benchmarks.simulation.rule import stopped
from bridge.launches.estimate import Launch
from bridge.launches.stopping import BLOCKS, MODELS, StopRule, decide, stopping_point


@pytest.mark.parametrize("rule", [MODELS, BLOCKS, StopRule(8, 60)], ids=["models", "blocks", "many"])
@pytest.mark.parametrize("sd", [0.01, 0.04, 0.08])
def test_the_vectorised_rule_is_the_products(rule, sd):
    rng = np.random.default_rng(round(1e4 * sd) + rule.most)
    logs = (
        0.05 + rng.normal(0.0, sd, (40, rule.most)) + np.tile(rng.normal(0, 0.1, rule.blocks), rule.most // rule.blocks)
    )
    ended = stopped(rule, logs)
    for row, mean, half, count in zip(logs, ended.mean, ended.half, ended.launches, strict=True):
        launches = [Launch(float(value), index % rule.blocks) for index, value in enumerate(row)]
        assert stopping_point(rule, launches) == count
        found = decide(rule, launches[:count]).ratio
        assert (found.log_ratio, found.half_width()) == pytest.approx((mean, half), rel=1e-9)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("blocks", [1, 5])
def test_equal_programs_differ_by_noise_only(name, blocks):
    found = errors(NOISES[name], "whole", blocks, (60, 20), np.random.default_rng(2))
    assert found.shape == (60, 20)
    means = found.mean(1)
    assert abs(means.mean()) < 5 * means.std() / math.sqrt(60)


@pytest.mark.parametrize("effect", campaign.EFFECTS)
def test_a_launch_effect_has_the_size_it_says(effect):
    found = campaign.effects(effect, 0.05, (200_000,), np.random.default_rng(3))
    assert abs(found.mean()) < 0.002
    assert found.std() == pytest.approx(0.05, rel=0.15)  # the fourth moment of t3 is infinite
    assert not campaign.effects(effect, 0.0, (3,), np.random.default_rng(3)).any()


def test_a_case_has_a_row_for_every_cell_and_the_same_seed_the_same_rows():
    case = "drift 30 %, whole"
    rows = campaign.run(case, runs=40)
    assert case in campaign.cases()
    assert len(rows) == 2 * len(campaign.EFFECTS) * len(campaign.LAUNCH_SDS)
    assert campaign.run(case, runs=40) == rows
    calm = next(row for row in rows if row["sd"] == 0.0 and row["blocks"] == "no")
    assert (calm["launches"], calm["covered"] > 30, calm["faster_at_1_10"]) == (8.0, True, 40)
    assert len(campaign.cases()) == len(set(campaign.cases())) == 24
