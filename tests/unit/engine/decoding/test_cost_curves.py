"""The controller on row costs that others measured on GPUs: how near it comes to the best fixed depth, and how soon."""

from __future__ import annotations

from statistics import mean

import pytest

from engine.decoding.arms import Arm
from engine.decoding.controller import ControlledDepth
from tests.fakes.published_curves import ACCEPTED, CURVES, LONGEST, measured, share, world
from tests.fakes.replay import replay


@pytest.mark.ci
def test_with_a_table_of_costs_every_curve_is_used_from_cold() -> None:
    cells = {(name, rate): share(name, rate, 512, read=True) for name in CURVES for rate in ACCEPTED}
    assert min(cells.values()) >= 0.90, cells
    assert mean(cells.values()) >= 0.95, cells


@pytest.mark.ci
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in {"valley", "M5 Max"} else pytest.mark.slow) for name in CURVES]
)
def test_with_a_table_of_costs_a_longer_answer_is_hardly_slower_than_at_the_best_depth(name: str) -> None:
    cells = {rate: share(name, rate, 2048, read=True) for rate in ACCEPTED}
    assert min(cells.values()) >= 0.95, cells


@pytest.mark.ci
def test_without_a_table_the_controller_gets_over_a_valley_and_does_not_creep() -> None:
    cells = {(name, rate): share(name, rate, 512, read=False) for name in CURVES for rate in ACCEPTED}
    assert min(cells.values()) >= 0.85, cells
    assert mean(cells.values()) >= 0.93, cells


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("tokens", "least"), [(512, 0.97), (1024, 0.98)])
def test_a_useless_drafter_costs_next_to_nothing_with_and_without_a_table(name: str, tokens: int, least: float) -> None:
    played = world(name, 0.05, 0)
    for table in (None, measured(played)):
        assert replay(ControlledDepth(LONGEST, table), played, tokens).ratio >= least


def test_a_block_that_is_known_to_cost_little_is_verified_at_once_and_a_dear_one_compared_first() -> None:
    first = {}
    for name in ("flat", "valley"):
        played = world(name, 0.93, 0)
        first[name] = replay(ControlledDepth(LONGEST, measured(played)), played, 64).depths[0]
    assert first["flat"] > 0
    assert first["valley"] == 0


def test_what_was_read_and_not_timed_moves_with_what_is_timed() -> None:
    policy = ControlledDepth(LONGEST, {"": {1: 1.0, 2: 1.5, 16: 3.0}})
    assert policy.choose(0, 100).count in range(LONGEST + 1)
    bucket = policy.buckets[0]
    for _ in range(40):
        bucket.learn(Arm("", 15), 6.0)
    assert bucket.of("").of(1) == pytest.approx(3.0, rel=0.05)
    assert bucket.plain_s == pytest.approx(2.0, rel=0.05)


def test_a_disturbed_first_step_of_a_depth_that_was_not_read_hardly_moves_the_others() -> None:
    policy = ControlledDepth(LONGEST, {"": {1: 1.0, 2: 1.5, 16: 3.0}})
    assert policy.choose(0, 100).count in range(LONGEST + 1)
    bucket = policy.buckets[0]
    bucket.learn(Arm("", 7), 20.0)
    assert bucket.of("").of(7) == 20.0
    assert bucket.of("").of(1) == pytest.approx(1.5, rel=0.1)
    assert bucket.of("").of(15) == pytest.approx(3.0, rel=0.1)
    assert bucket.plain_s == pytest.approx(1.0, rel=0.1)
    bucket.learn(Arm("", 7), 2.0)
    assert bucket.of("").of(7) == 2.0
