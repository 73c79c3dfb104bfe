"""The simulation uses the product's rule, and its noises are what they are called."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.studies.report import report_of
from benchmarks.studies.statistics import campaign, choices, failures, page, standing
from benchmarks.studies.statistics.bars import bars
from benchmarks.studies.statistics.noises import NOISES, errors
from benchmarks.studies.statistics.rule import stopped
from bridge.launches.estimate import Launch
from bridge.launches.standing import over_sittings
from bridge.launches.stopping import BLOCKS, MODELS, LaunchRule, decide, stopping_point


@pytest.mark.parametrize("rule", [MODELS, BLOCKS, LaunchRule(8, 60)], ids=["models", "blocks", "many"])
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
        ratio = decide(rule, launches[:count]).ratio
        assert (ratio.log_ratio, ratio.half_width()) == pytest.approx((mean, half), rel=1e-9)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("blocks", [1, 5])
def test_equal_programs_differ_by_noise_only(name, blocks):
    errors_drawn = errors(NOISES[name], "whole", blocks, (60, 20), np.random.default_rng(2))
    assert errors_drawn.shape == (60, 20)
    means = errors_drawn.mean(1)
    assert abs(means.mean()) < 5 * means.std() / math.sqrt(60)


@pytest.mark.parametrize("effect", campaign.EFFECTS)
def test_a_launch_effect_has_the_size_it_says(effect):
    effects = campaign.effects(effect, 0.05, (200_000,), np.random.default_rng(3))
    assert abs(effects.mean()) < 0.002
    assert effects.std() == pytest.approx(0.05, rel=0.15)  # the fourth moment of t3 is infinite
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


@pytest.mark.parametrize("case", failures.CASES)
def test_every_known_failure_is_measured(case):
    (row,) = failures.run(case, runs=80)
    assert (row["name"], row["runs"] > 0) == (case, True)


def test_cancelled_beginnings_are_taken_in_as_the_product_pools_them():
    row = failures.beginnings(0.05, 10, np.random.default_rng(5), 4000)
    assert row["false_faster"] <= row["false_faster_dropped"] / 2
    assert row["cancelled"] == pytest.approx(1.0, abs=0.1)  # half of the beginnings are bad


def test_a_correction_for_looks_widens_the_interval_and_moves_no_stop():
    logs = np.random.default_rng(6).normal(0.0, 0.04, (50, 20))
    plain, best = stopped(MODELS, logs), stopped(MODELS, logs, looks=5)
    assert (plain.launches == best.launches).all()
    assert (best.half > plain.half).all()
    launches = [Launch(float(value)) for value in logs[0][: plain.launches[0]]]
    assert decide(MODELS, launches).ratio.half_width(5) == pytest.approx(best.half[0])


def test_the_vectorised_standing_claim_is_the_products():
    means = np.random.default_rng(7).normal(0.1, 0.05, (20, 7))
    for row, mean, half, ahead in zip(means, *standing.intervals(means), strict=True):
        ratio = over_sittings(list(row))
        assert (ratio.log_ratio, ratio.half_width()) == (pytest.approx(mean), pytest.approx(half))
        assert ratio.next_half_width() == pytest.approx(ahead)


@pytest.mark.parametrize("noise", standing.NOISES)
def test_sittings_scatter_by_what_they_say_and_those_of_a_day_share_it(noise):
    effects, apart = standing.sittings_of(noise, 0.08, (40_000, 4), np.random.default_rng(8))
    own = standing.LAUNCH_SD**2 / standing.LAUNCHES
    assert math.sqrt(effects.var() - own) == pytest.approx(0.08, rel=0.15)
    assert abs(apart.mean()) < 0.003
    shared = np.corrcoef(effects[:, 0], effects[:, 1])[0, 1]
    rho = {"AR .5": 0.5, "AR .8": 0.8, "one effect a day": 1.0}.get(noise, 0.0)
    assert shared == pytest.approx(rho * 0.08**2 / (0.08**2 + own), abs=0.03)


@pytest.mark.parametrize("case", choices.CASES)
def test_every_choice_is_measured(case):
    (row,) = choices.run(case, runs=60)
    assert (row["name"], row["runs"]) == (case, 60)


def test_the_committed_standing_claims_are_whole_and_cover_and_what_falls_short_is_named():
    cells = page.rows(standing.STUDY.name)
    assert {row["noise"] for row in cells} == set(standing.NOISES)
    assert len(page.rows(choices.STUDY.name)) == len(choices.CASES)
    assert standing.required(cells, "covered").endswith(": met")
    assert not {*standing.REQUIRED} & standing.known_failures(cells).keys()
    short = [{**row, "covered": 0} if row["noise"] == "t3" else row for row in cells]
    assert "NOT met in 12 of 24 cells" in standing.required(short, "covered")
    assert standing.known_failures(short)["t3"] == 0.0


def cell(**changed):
    row = {"noise": "bursts", "order": "turns", "blocks": "no", "effect": "Gaussian", "sd": 0.02, "runs": 10_000}
    row |= {"launches": 8.0, "half_width": 0.02, "covered": 9500, "false_faster": 40, "false_slower": 50}
    row |= {"faster_at_5_slower": 1, "faster_at_1_05": 8000, "faster_at_1_10": 9000, "faster_at_1_20": 10_000}
    return row | {"width_reached": 10_000} | changed


def test_a_bar_is_met_in_every_cell_or_says_the_worst():
    assert all(bar.met for bar in bars([cell()]))
    for name, value in (("covered", 9399), ("false_faster", 51), ("false_slower", 51), ("faster_at_5_slower", 2)):
        missed = [bar for bar in bars([cell(), cell(noise="drift 10 %", **{name: value})]) if not bar.met]
        assert len(missed) == 1, name
        assert "NOT met in all of 2 cells" in str(missed[0])
        assert "drift 10 %" in str(missed[0])
    assert not bars([cell(faster_at_1_10=8999)])[-1].met
    assert all(
        bar.met for bar in bars([cell(), cell(order="whole", faster_at_1_10=1), cell(sd=0.08, faster_at_1_10=1)])
    )
    assert all(bar.met for bar in bars([cell(), cell(effect="two-mode", covered=1)]))
    assert bars([]) == ()


def test_the_page_says_how_much_is_done(tmp_path):
    assert "0 of 24 pairs" in page.page(tmp_path)
    rows = [cell(effect="two-mode"), cell(effect="two-mode", sd=0.03, covered=9400), cell()]
    report_of("simulation", tmp_path).append({"case": "bursts, turns", "rows": rows})
    text = page.page(tmp_path)
    assert "1 of 24 pairs" in text
    assert "the worst of theirs covers in\n0.940." in text


def test_the_committed_report_is_whole_and_meets_what_the_design_asks():
    assert page.done() == (24, 24)
    cells = page.rows("simulation")
    assert min(row["runs"] for row in cells) >= 20_000
    assert [str(bar) for bar in bars(cells) if not bar.met] == []
