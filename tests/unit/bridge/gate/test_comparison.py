"""Two runs against each other: the gate's statistics, SciPy as oracle, and every reason why nothing is citable."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import scipy

from bridge.client.clone.packed import read_packed
from bridge.gate.comparability import NEVER_CITABLE, MeasuredRun, of_reports
from bridge.gate.comparison import compare
from bridge.gate.interface import Report
from bridge.gate.stats.ratio import paired_double_ratio, paired_ratio
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from tests.corpus.gate.bounded import bounded_recall
from tests.corpus.gate.generations import Plan, code_throughput
from tests.corpus.gate.studies import TARGET, needle_recall, verify_cost
from tests.support.committed import SMOKE, SMOKE_AGAIN

REAL = (SMOKE, SMOKE_AGAIN)


@cache
def built(seed):
    return code_throughput(Plan(seed=seed))


def claim_run(seed):
    """Return a fresh copy of an honest claim run, built once a seed."""
    return built(seed).copy()


def side(case, decision="valid"):
    return MeasuredRun(case.files(), case.record_value(), case.spec_value(), decision)


def real(packed):
    files = read_packed(packed).files
    return MeasuredRun(
        {"report.json": files["reports/report.json"]},
        RunRecord.parse(files["run.json"], max_bytes=1 << 26),
        JobSpec.parse(files["spec.json"]),
        "valid",
    )


def found(comparison, metric, arm):
    return next(
        difference for difference in comparison.differences if (difference.metric, difference.arm) == (metric, arm)
    )


def texts(comparison, kind="weaker"):
    return [reason.text for reason in comparison.reasons if reason.kind == kind]


def by_digest(case, arm, stage):
    samples = next(entry for entry in case.report["arms"] if entry["name"] == arm)["samples"]
    return {s["prompt_digest"]: s["stages"][stage] for s in samples if not s["is_warmup"]}


def test_a_real_pair_of_runs_is_compared_over_all_prompts():
    comparison = compare(real(REAL[0]), real(REAL[1]))
    assert {difference.n for difference in comparison.differences if difference.metric == "decode_time_ratio"} == {3}
    assert found(comparison, "identical_outputs", "speculative").value == 3
    assert [floor.a is None and floor.b is None for floor in comparison.noise] == [True, True]
    assert NEVER_CITABLE in texts(comparison)
    assert texts(comparison, "impossible") == []


def test_swapping_the_runs_turns_every_ratio_over():
    comparison, other = compare(real(REAL[0]), real(REAL[1])), compare(real(REAL[1]), real(REAL[0]))
    for forward in comparison.differences:
        back = found(other, forward.metric, forward.arm)
        if forward.unit == "ratio":
            assert forward.value * back.value == pytest.approx(1.0)
            assert forward.interval[0] * back.interval[1] == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.25])
def test_a_planted_change_of_the_candidate_is_found_and_the_baseline_is_not_touched(factor):
    fast = side(claim_run(3))
    slow = side(code_throughput(Plan(seed=3, shift=lambda arm, *_: factor if arm == "speculative" else 1.0)))
    comparison = compare(fast, slow)
    words = {0.8: "faster", 1.0: "equivalent within 5 %", 1.25: "slower"}
    decode = found(comparison, "decode_time_ratio", "speculative")
    assert decode.detail["effect"] == words[factor]
    assert decode.value == pytest.approx(1 / factor, rel=1e-6)
    assert found(comparison, "decode_time_ratio", "autoregressive").detail["effect"] == "equivalent within 5 %"
    assert found(comparison, "speedup_ratio", "speculative").value == pytest.approx(1 / factor, rel=1e-6)


def test_a_slower_machine_moves_the_times_and_leaves_the_ratio_of_speed_ups():
    comparison = compare(side(claim_run(3)), side(code_throughput(Plan(seed=4, shift=lambda *_: 1.5))))
    assert texts(comparison)[0] == NEVER_CITABLE
    assert found(comparison, "decode_time_ratio", "autoregressive").detail["effect"] == "slower"
    speedup = found(comparison, "speedup_ratio", "speculative")
    assert speedup.interval[0] < 1.0 < speedup.interval[1]


def test_the_ratio_and_its_interval_are_the_delta_method_with_scipys_t():
    cases = claim_run(3), claim_run(5)
    decode = found(compare(*(side(case) for case in cases)), "prefill_time_ratio", "speculative")
    ours, theirs = (by_digest(case, "speculative", "prefill_s") for case in cases)
    keys = list(ours)
    a, b = np.array([ours[k] for k in keys]), np.array([theirs[k] for k in keys])
    residual = a / a.mean() - b / b.mean()
    half = scipy.stats.t.ppf(0.975, len(keys) - 1) * residual.std(ddof=1) / math.sqrt(len(keys))
    assert decode.value == pytest.approx(a.sum() / b.sum())
    assert decode.interval == pytest.approx((decode.value * math.exp(-half), decode.value * math.exp(half)))


def test_the_double_ratio_agrees_with_bootstrap_t():
    rng = np.random.default_rng(11)
    work = rng.lognormal(0.0, 0.3, 60)
    lists = [work * rng.lognormal(0.0, 0.05, 60) * scale for scale in (1.3, 1.0, 1.1, 1.0)]
    estimate = paired_double_ratio((lists[0], lists[1]), (lists[2], lists[3]))

    def parts(picked):
        means = [values.mean() for values in picked]
        scaled = [values / mean for values, mean in zip(picked, means, strict=True)]
        error = (scaled[0] - scaled[1] - scaled[2] + scaled[3]).std(ddof=1) / math.sqrt(60)
        return math.log(means[0] / means[1] / (means[2] / means[3])), error

    pivots = []
    for _ in range(2000):
        pick = rng.integers(0, 60, 60)
        value, error = parts([values[pick] for values in lists])
        pivots.append((value - estimate.log_ratio) / error)
    low, high = (estimate.log_ratio - q * estimate.error for q in np.quantile(pivots, [0.975, 0.025]))
    ours = [math.log(bound) for bound in estimate.interval(0.95)]
    assert ours == pytest.approx([low, high], abs=0.35 * estimate.half_width(0.95))


def test_a_double_ratio_over_ones_is_the_ratio():
    top, bottom, ones = [1.0, 2.5, 3.0], [2.0, 2.0, 2.5], [1.0, 1.0, 1.0]
    double, single = paired_double_ratio((top, bottom), (ones, ones)), paired_ratio(top, bottom)
    assert (double.log_ratio, double.error) == pytest.approx((single.log_ratio, single.error))
    assert double.df == single.df
    with pytest.raises(ValueError, match="units"):
        paired_double_ratio((top, bottom), (ones, ones[:2]))
    with pytest.raises(ValueError, match="not positive"):
        paired_double_ratio((top, bottom), (ones, [0.0, 0.0, 0.0]))


def test_lost_needles_are_bounded_by_tango():
    plain, worse = needle_recall(), needle_recall()
    samples = [
        s for arm in worse.report["arms"] if arm["name"] == "speculative" for s in arm["samples"] if not s["is_warmup"]
    ]
    for sample in samples[:9]:
        sample["text"] = "I do not know"
    recall = found(compare(side(plain), side(worse.seal())), "recall_difference", "speculative")
    assert recall.value == pytest.approx(-9 / 60)
    assert (recall.detail["lost"], recall.detail["gained"], recall.detail["preserved"]) == (9, 0, False)
    # For one-sided discordance Tango's restricted estimate is in closed form: the bound solves a quadratic.
    z, bound = scipy.stats.norm.ppf(0.95), recall.interval[0]
    score = (-9 - 60 * bound) / math.sqrt(60 * (2 * _restricted(0, 9, 60, bound) + bound * (1 - bound)))
    assert score == pytest.approx(z, abs=1e-6)


def _restricted(gained, lost, n, difference):
    a, b = 2 * n, -gained - lost + (2 * n - gained + lost) * difference
    c = -lost * difference * (1 - difference)
    return (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)


def spoilt(change):
    case = claim_run(3)
    change(case)
    return side(case.seal())


def other_host(case):
    case.record["host"]["name"] = "elsewhere"


def other_code(case):
    case.record["code"]["identity"] = "c" * 40


def other_packages(case):
    case.record["code"]["packages"]["mlx"] = "9.9"
    case.record["code"]["lock_digest"] = "0" * 64


def other_model(case):
    case.report["config"]["target"]["digest"] = "0" * 64


def other_depth(case):
    case.report["config"]["depth"] = {"policy": "fixed", "tokens": 2}


def other_device(case):
    case.report["environment"]["device"] = "metal"


def fewer_prompts(case):
    for arm in case.report["arms"]:
        arm["samples"] = [s for s in arm["samples"] if not (s["launch"] == 4 and not s["is_warmup"])]


def shorter_outputs(case):
    for arm in case.report["arms"]:
        next(s for s in arm["samples"] if not s["is_warmup"])["tokens"].pop()


@pytest.fixture(scope="module")
def one_run():
    """Return a run, and what is said of its comparison with itself."""
    run = side(claim_run(3))
    return run, texts(compare(run, run))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_host, "other host"), (other_code, "other code"), (other_packages, "other packages: mlx"),
        (other_model, "other model: target"), (other_depth, "other setting: depth"), (other_device, "other device"),
        (fewer_prompts, "other prompts: arm 'autoregressive' has 48 in common, of 60 and 48"),
        (shorter_outputs, "1 of 60 prompts got outputs of other lengths"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_what_the_runs_do_not_share_is_named(one_run, change, reason):
    run, with_itself = one_run
    comparison = compare(run, spoilt(change))
    assert comparison.differences
    assert any(reason in text for text in texts(comparison)), texts(comparison)
    assert not any(reason in text for text in with_itself)


def test_rows_that_another_f_theta_made_are_another_models():
    ours, theirs = (Report("report.json", b"", bounded_recall(TARGET, 4).report) for _ in range(2))
    assert list(of_reports(ours, theirs)) == []
    theirs.body["config"]["restoration"]["digest"] = "0" * 64
    (reason,) = of_reports(ours, theirs)
    assert reason.text.startswith("other model: restoration kakeya-tiny-gemma4-ftheta64 ")


def no_common_prompt(case):
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample["prompt_digest"] = sample["prompt_digest"][::-1]


def test_without_a_common_prompt_there_is_no_number_and_a_reason():
    comparison = compare(side(claim_run(3)), spoilt(no_common_prompt))
    assert comparison.differences == ()
    assert "has none in common (60 and 60)" in texts(comparison, "impossible")[0]


def test_a_rejected_run_is_compared_with_nothing():
    case = claim_run(3)
    comparison = compare(side(case), side(case, "rejected"))
    assert comparison.differences == ()
    assert texts(comparison, "impossible") == ["B was rejected by its gate: nothing it says may be used"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: side(needle_recall()), "other kinds: code_throughput and needle_recall"),
        (lambda: MeasuredRun({"report.json": b"{"}, None, None, "valid"), "not well-formed in both runs"),
        (lambda: MeasuredRun({}, None, None, "valid"), "only A has it"),
    ],
)
def test_reports_that_cannot_be_paired_are_reasons(other, reason):
    comparison = compare(side(claim_run(3)), other())
    assert comparison.differences == ()
    assert reason in texts(comparison, "impossible")[0]


def test_reports_without_samples_say_so():
    comparison = compare(side(verify_cost()), side(verify_cost()))
    assert texts(comparison, "impossible") == ["kind verify_cost has no samples that could be paired"]


def test_a_first_look_and_the_same_run_twice_are_named():
    plan = Plan(profile="smoke", launches=1, per_launch=6, warmups=1)
    comparison = compare(*[side(code_throughput(plan))] * 2)
    reasons = " ".join(texts(comparison))
    assert "a smoke run is a first look" in reasons
    assert "the same run" in reasons
    assert [floor.a for floor in comparison.noise] == [None, None]
