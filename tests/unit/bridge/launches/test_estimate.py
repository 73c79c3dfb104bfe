"""The ratio over launches against SciPy and simulation, and what it refuses."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy

from bridge.launches.estimate import Launch, over_launches, prompts_like_these, rotations


def launches(logs, blocks=1):
    return [Launch(float(value), index % blocks) for index, value in enumerate(logs)]


def test_the_interval_is_students_at_98_per_cent_a_side():
    logs = np.random.default_rng(1).normal(0.1, 0.03, 9)
    estimate = over_launches(launches(logs))
    low, high = scipy.stats.t.interval(0.96, 8, loc=logs.mean(), scale=scipy.stats.sem(logs))
    assert estimate.interval() == pytest.approx((math.exp(low), math.exp(high)))
    assert (estimate.sd, estimate.df, estimate.launches) == (pytest.approx(logs.std(ddof=1)), 8, 9)
    assert estimate.half_width(4) == pytest.approx(scipy.stats.t.ppf(1 - 0.02 / 4, 8) * scipy.stats.sem(logs))


def test_bounds_that_no_number_holds_are_as_wide_as_numbers_are():
    ratio = over_launches([Launch(0.0), Launch(math.log(4.0))])
    assert ratio.half_width(looks=64) > 700.0
    low, high = ratio.interval(looks=64)
    assert 0.0 < low < 1e-300
    assert 1e300 < high < math.inf


def test_what_the_blocks_differ_by_is_removed_as_a_linear_model_does():
    rng = np.random.default_rng(2)
    logs = rng.normal(0.05, 0.02, 15) + np.tile(rng.normal(0, 0.2, 5), 3)
    estimate = over_launches(launches(logs, 5), 5)
    design = np.tile(np.eye(5), (3, 1))
    _, residue, *_ = np.linalg.lstsq(design, logs, rcond=None)
    assert estimate.df == 10
    assert estimate.sd == pytest.approx(math.sqrt(residue[0] / 10))
    assert estimate.log_ratio == pytest.approx(logs.mean())
    moved = over_launches(launches(logs + np.tile([1, -1, 2, -2, 0], 3), 5), 5)
    assert (moved.log_ratio, moved.error) == (pytest.approx(estimate.log_ratio), pytest.approx(estimate.error))


def test_a_rotation_that_was_cut_stays_outside():
    logs = [0.01, 0.02, 0.03, 0.04, 0.05] * 2
    cut = launches([*logs, 5.0, -5.0], 5)
    assert over_launches(cut, 5) == over_launches(launches(logs, 5), 5)
    whole, rest = rotations(cut, 5)
    assert (len(whole), [launch.log_ratio for launch in rest]) == (10, [5.0, -5.0])
    assert over_launches(launches(logs[:9], 5), 5) is None
    assert over_launches([Launch(0.1)]) is None


def test_a_launch_that_left_nothing_takes_its_rotation_out_and_not_the_blocks_apart():
    run = [(0, 0.1), (1, 0.2), (0, 0.1), (2, 0.3), (0, 9.0), (1, 0.2), (2, 0.3)]  # block 1 and 2 lost a launch each
    whole, rest = rotations([Launch(value, block) for block, value in run], 3)
    assert [launch.log_ratio for launch in rest] == [9.0]
    estimate = over_launches([*whole, *rest], 3)
    assert (estimate.launches, estimate.sd, estimate.log_ratio) == (6, pytest.approx(0.0), pytest.approx(0.2))
    with pytest.raises(ValueError, match="expected 0 to 4"):
        over_launches([Launch(0.0, 5)], 5)


def test_the_interval_for_other_prompts_covers_what_it_says():
    rng = np.random.default_rng(3)
    draws, hits, prompts = 600, 0, 12
    for _ in range(draws):
        candidate = rng.lognormal(0.0, 0.2, prompts)
        baseline = candidate * np.exp(rng.normal(0.0, 0.15, prompts))
        true = 0.15**2 / 2  # log of the mean of lognormal ratios
        own = math.log(baseline.sum() / candidate.sum())
        ratio = over_launches(launches(rng.normal(own, 0.04, 8)))
        wide = prompts_like_these(ratio, list(baseline), list(candidate))
        assert wide.error > ratio.error
        low, high = wide.interval()
        hits += low <= math.exp(true) <= high
    assert hits / draws > 0.94 - 3 * math.sqrt(0.05 * 0.95 / draws)


def test_other_prompts_need_two_prompts_and_positive_times():
    ratio = over_launches(launches([0.1, 0.2]))
    assert prompts_like_these(ratio, [1.0], [1.0]) is None
    with pytest.raises(ValueError, match="same ones"):
        prompts_like_these(ratio, [1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="not positive"):
        prompts_like_these(ratio, [0.0, 0.0], [1.0, 1.0])


def test_the_supervisor_may_import_it_without_a_third_party_package():
    program = (
        "import importlib, pkgutil, sys\n"
        "import bridge.launches as room\n"
        "for found in pkgutil.iter_modules(room.__path__, 'bridge.launches.'):\n"
        "    importlib.import_module(found.name)\n"
        "known = sys.stdlib_module_names | {'bridge', '__main__'}\n"
        "own = {n for n in sys.modules if n.startswith('bridge')} - {'bridge', 'bridge.launches'}\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} - known - before), \n"
        "      sorted(n for n in own if not n.startswith('bridge.launches.')))\n"
    )
    words = [sys.executable, "-c", "import sys\nbefore = {n.split('.')[0] for n in sys.modules}\n" + program]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[] []\n"
