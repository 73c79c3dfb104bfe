"""The ratio at both ends of a load that the runner drew: a least-squares fit beside blocks."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import scipy

from bridge.launches.estimate import Launch
from bridge.launches.loads import draw_loads, over_loads, pool_loads, whole_loads


def drawn(blocks: int, rotations: int, *, slope: float = 0.1, sd: float = 0.02, seed: int = 1) -> list[Launch]:
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    launches: list[Launch] = []
    under_load: frozenset[int] = frozenset()
    for rotation in range(rotations):
        under_load = frozenset(range(blocks)) - under_load if rotation % 2 else draw_loads(blocks, draw)
        for block in range(blocks):
            loaded = block in under_load
            log_ratio = 0.5 + 0.05 * block + slope * loaded + rng.normal(0.0, sd)
            launches.append(Launch(float(log_ratio), block, loaded))
    return launches


@pytest.mark.parametrize(("blocks", "rotations"), [(5, 4), (5, 2), (1, 20)])
def test_slope_and_spread_are_those_of_the_least_squares_fit_beside_blocks(blocks, rotations):
    launches = drawn(blocks, rotations)
    design = np.array([[*(launch.block == b for b in range(blocks)), launch.loaded] for launch in launches], float)
    values = np.array([launch.log_ratio for launch in launches])
    fit, squares, *_ = np.linalg.lstsq(design, values, rcond=None)
    df = len(launches) - blocks - 1
    sd = math.sqrt(squares[0] / df)
    ratio = over_loads(launches, blocks)
    assert (ratio.launches, ratio.slope.df) == (len(launches), df)
    assert ratio.slope.log_ratio == pytest.approx(fit[-1])
    assert ratio.sd == pytest.approx(sd)
    error = sd * math.sqrt(np.linalg.inv(design.T @ design)[-1, -1])
    assert ratio.slope.half_width() == pytest.approx(scipy.stats.t.ppf(0.98, df) * error)
    free = [launch.log_ratio for launch in launches if not launch.loaded]
    assert ratio.free.log_ratio == pytest.approx(sum(free) / len(free))
    assert ratio.free.error >= sd / math.sqrt(len(free)) - 1e-12


def test_a_word_has_to_hold_at_both_ends_and_both_are_printed():
    ratio = over_loads(drawn(5, 4, slope=0.3), 5)
    bounds = ratio.bounds()
    assert bounds.low == pytest.approx(ratio.free.interval()[0])
    assert bounds.high == pytest.approx(ratio.loaded.interval()[1])
    assert str(ratio.shown()).count("95 %") == 3
    assert "with all processors free" in str(ratio.shown())


def test_an_end_that_scatters_more_has_its_own_spread():
    launches = [
        Launch(launch.log_ratio + (0.2 * (-1) ** place if launch.loaded else 0.0), 0, launch.loaded)
        for place, launch in enumerate(drawn(1, 20, sd=0.01))
    ]
    ratio = over_loads(launches)
    assert ratio.loaded.error > ratio.free.error
    assert ratio.loaded.error > ratio.sd / math.sqrt(10.0)


def test_launches_without_their_counterpart_are_left_out():
    launches = drawn(5, 3)
    assert len(whole_loads(launches, 5)) == 10
    assert over_loads(launches, 5).launches == 10
    assert over_loads(drawn(5, 1), 5) is None
    assert over_loads([]) is None


def moved(launches: list[Launch], apart: float, ends: set[bool]) -> list[Launch]:
    """Return launches whose ratios at some of the loads are another sitting's."""
    return [replace(launch, log_ratio=launch.log_ratio + apart * (launch.loaded in ends)) for launch in launches]


def mean_at(sitting: list[Launch], loaded: bool) -> float:
    return float(np.mean([launch.log_ratio for launch in sitting if launch.loaded == loaded]))


@pytest.mark.parametrize("ends", [{False, True}, {False}, {True}])
def test_three_sittings_that_differ_at_either_load_are_the_units_of_both_ends(ends):
    sittings = [moved(drawn(5, 4, seed=seed), apart, ends) for seed, apart in enumerate((-0.2, 0.0, 0.2))]
    ratio = pool_loads(sittings, 5)
    means = {loaded: np.array([mean_at(sitting, loaded) for sitting in sittings]) for loaded in (False, True)}
    expected = [(ratio.free, means[False]), (ratio.loaded, means[True]), (ratio.slope, means[True] - means[False])]
    for estimate, values in expected:
        assert estimate.log_ratio == pytest.approx(np.mean(values))
        assert estimate.half_width() == pytest.approx(scipy.stats.t.ppf(0.98, 2) * scipy.stats.sem(values))
    assert (ratio.unit, ratio.launches) == ("sitting", 60)
    assert ratio.bounds().value == pytest.approx(math.exp((np.mean(means[False]) + np.mean(means[True])) / 2.0))


def test_sittings_that_are_alike_or_too_few_leave_the_launches_the_units():
    alike = [drawn(5, 4)] * 3
    assert pool_loads(alike, 5) == over_loads([launch for sitting in alike for launch in sitting], 5)
    apart = [moved(drawn(5, 4), by, {False, True}) for by in (0.0, 0.3)]
    assert pool_loads(apart, 5).unit == "launch"
    assert pool_loads([drawn(5, 1), []], 5) is None


def test_half_of_a_rotation_is_drawn_and_the_odd_block_by_a_coin():
    sizes = {len(draw_loads(5, random.Random(seed))) for seed in range(40)}
    firsts = {draw_loads(1, random.Random(seed)) for seed in range(40)}
    assert sizes == {2, 3}
    assert firsts == {frozenset(), frozenset({0})}
