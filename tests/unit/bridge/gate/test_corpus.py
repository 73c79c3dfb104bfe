"""Hand-made cheats meet their own rule; honest but awkward runs are never refused."""

from __future__ import annotations

import copy
import datetime as dt
import re

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.awkward import AWKWARD
from tests.corpus.gate.breaks import honest, retoken
from tests.corpus.gate.builders import Case
from tests.corpus.gate.cheats import CHEATS
from tests.corpus.gate.generations import Plan, code_throughput
from tests.corpus.gate.studies import BUILDERS

RANK = ("rejected", "recorded", "valid", "evidence")


def judged(case):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


@pytest.mark.ci
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_stopped_by_its_own_rule(name):
    rule, at_best, build = CHEATS[name]
    verdict = judged(build())
    assert RANK.index(verdict.decision) <= RANK.index(at_best)
    assert rule in {finding.code for finding in verdict.findings if finding.severity != "note"}


@pytest.mark.parametrize("name", AWKWARD)
def test_an_honest_but_awkward_run_is_not_refused(name):
    verdict = judged(AWKWARD[name]())
    assert [f"{f.code} {f.message}" for f in verdict.findings if f.severity == "reject"] == []


MISSING = {
    "claim": {"times"},
    "probe": set(),
    "suite": set(),
    "needle_recall": set(),
    "acceptance": {"outputs"},
    "distributed_bench": {"times"},
    "distributed_e2e": set(),
    "commit_comparison": {"times"},
    "request_code": set(),
    "kv_quantisation": set(),
    "drafter_parity": set(),
    "verify_cost": {"times"},
    "fused_graph_probe": {"times"},
    "f_theta_training": set(),
    "bounded_kv": set(),
    "bounded_recall": set(),
}
"""Premises of the primary claim that no runner can see yet, by kind; the others are held in an honest run."""


@pytest.mark.parametrize("name", MISSING)
def test_an_honest_claim_run_of_every_kind_lacks_only_what_nobody_can_see(name):
    verdict = judged(honest(name))
    primary = [claim for claim in verdict.claims if claim.role == "primary"]
    assert {premise for claim in primary for premise in claim.missing} == MISSING[name], verdict.why
    assert verdict.decision == ("valid" if MISSING[name] else "evidence"), verdict.why


def test_every_kind_has_an_honest_run():
    assert set(BUILDERS) | {"claim", "probe", "suite"} == set(MISSING)


def drifting() -> Case:
    return code_throughput(Plan(shift=lambda _arm, launch, _index: 1.0 + 0.1 * launch))


@pytest.mark.parametrize(
    ("factor", "noise", "bound"),
    [(1.0, 0.02, "+5.0 %"), (-1.0, 0.02, "-4.8 %"), (1.0, 2.0, "+10.0 %")],
    ids=["slower", "quicker", "by chance"],
)
def test_a_baseline_that_drifts_is_held_against_the_bound_of_its_own_direction(factor, noise, bound):
    """What chance explains is held against the wider bound, and only where nobody knows the machine's state."""
    case = code_throughput(Plan(noise=noise, shift=lambda _arm, launch, _index: (1.0 + 0.1 * launch) ** factor))
    (message,) = [finding.message for finding in judged(case).findings if finding.code == "G8-STATE"]
    drift, beyond = (float(percent) for percent in re.findall(r"([+-][0-9.]+) %", message))
    assert abs(drift) > abs(beyond)
    assert message.endswith(f"beyond the bound of {bound}")


def slept(seconds: float, *, recorded: bool) -> Case:
    """Return a probe on a machine that slept in mid-run: its steady clocks stood still."""
    case = honest("probe")
    for value in (case.report, case.record):
        name = "ended_at" if value is case.report else "ended"
        ended = dt.datetime.fromisoformat(value[name]) + dt.timedelta(seconds=seconds)
        value[name] = ended.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    case.record["telemetry"]["slept_s"] = seconds if recorded else 0.0
    return case.seal()


def test_a_report_of_a_machine_that_slept_loses_its_times_and_contradicts_nobody():
    verdict = judged(slept(3600.0, recorded=True))
    assert verdict.decision != "rejected", verdict.why
    assert ("violation", "times") in {(f.severity, f.premise) for f in verdict.findings if f.code == "G4-WINDOW"}
    verdict = judged(slept(3600.0, recorded=False))
    assert verdict.decision == "rejected"
    assert "reject" in {finding.severity for finding in verdict.findings if finding.code == "G4-WINDOW"}


def set_back(name: str, seconds: float) -> Case:
    """Return an honest run in whose middle the machine's wall clock was set back."""
    case = honest(name)
    for value, field in ((case.report, "ended_at"), (case.record, "ended")):
        ended = dt.datetime.fromisoformat(value[field]) - dt.timedelta(seconds=seconds)
        value[field] = ended.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    return case.seal()


@pytest.mark.ci
@pytest.mark.parametrize("seconds", [5.0, 7200.0])
@pytest.mark.parametrize("name", ["probe", "smoke", "turned"])
def test_a_wall_clock_that_was_set_back_takes_times_and_contradicts_nobody(name, seconds):
    verdict = judged(set_back(name, seconds))
    findings = [(f.code, f.severity, f.premise) for f in verdict.findings if f.code in {"G2-TIMES", "G4-WINDOW"}]
    assert ("G2-TIMES", "violation", "times") in findings
    assert verdict.decision != "rejected", verdict.why
    claims = {claim.id: claim for claim in verdict.claims}
    if name == "turned":
        assert claims["identical_prompts"].decision == claims["acceptance_length"].decision == "evidence"
        assert claims["decode_speedup"].missing == ("times",)


def test_a_report_whose_times_a_clock_that_was_set_back_does_not_explain_is_refused():
    case = set_back("turned", 5.0)
    began = dt.datetime.fromisoformat(case.record["started"]) - dt.timedelta(seconds=60.0)
    case.report["started_at"] = began.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    assert "reject" in {f.severity for f in judged(case.seal()).findings if f.code == "G4-WINDOW"}


def hot() -> Case:
    case = honest("claim")
    case.record["telemetry"]["thermal"] = ["hottest sensor 99 C", "hottest sensor 99 C"]
    case.record["telemetry"]["sources"]["thermal"] = "sensors"
    return case.seal()


def pressed() -> Case:
    case = hot()
    case.record["telemetry"]["thermal"] = ["nominal", "moderate"]
    return case.seal()


@pytest.mark.parametrize(("busy", "code"), [(drifting, "G8-STATE"), (hot, "G8-STATE"), (pressed, "G8-STATE")])
def test_a_machine_that_others_use_stops_absolute_numbers_alone(busy, code):
    claims = {claim.id: claim for claim in judged(busy()).claims}
    assert any(code in why for why in claims["baseline_tokens_per_s"].why)
    assert "machine" in claims["baseline_tokens_per_s"].missing
    assert claims["identical_prompts"].decision == "evidence"
    assert (claims["acceptance_length"].missing, claims["decode_speedup"].missing) == (("outputs",), ("times",))


def test_a_second_arm_that_differs_is_looked_at():
    case = honest("distributed_e2e")
    second = copy.deepcopy(case.report["arms"][1])
    second["name"] = "crosshost"
    case.report["arms"].append(second)
    for sample in second["samples"]:
        retoken(case, sample, [*sample["tokens"][:-1], (sample["tokens"][-1] + 7) % 2000 + 6])
    arms = [f.arms for f in judged(case.seal()).findings if f.code == "G6-IDENTITY"]
    assert ("crosshost",) in arms
    assert ("loopback",) not in arms


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_rung_that_is_not_the_in_process_one_is_said_in_every_dtype(dtype):
    case = honest("distributed_e2e")
    case.report["config"]["dtype"] = case.report["config"]["target"]["dtype"] = dtype
    for sample in case.report["arms"][2]["samples"]:
        retoken(case, sample, [*sample["tokens"][:-1], (sample["tokens"][-1] + 7) % 2000 + 6])
    verdict = judged(case.seal())
    severities = {finding.code: finding.severity for finding in verdict.findings if finding.arms == ("loopback",)}
    assert severities["G6-RUNGS"] == "violation"
    assert severities["G6-IDENTITY"] == ("violation" if dtype == "float32" else "note")
    assert next(claim.value for claim in verdict.claims if claim.id == "identical_rungs") == 0.0


def test_drafts_that_two_rungs_agree_on_and_the_drafter_here_does_not_make_are_no_outputs():
    case = honest("distributed_e2e")
    for row in case.report["rows"]["drafts"]:
        row["digest"] = "ab" * 32  # both rungs tell one story, so they are equal
    claims = {claim.id: claim for claim in judged(case.seal()).claims}
    assert claims["identical_rungs"].value == 6.0
    assert claims["identical_rungs"].missing == ("outputs",)
    assert "digest came out otherwise when it was measured again" in "".join(claims["identical_rungs"].why)


def test_every_round_trip_time_of_a_bench_is_a_claim_of_its_own():
    case = honest("distributed_bench")
    claims = {claim.id: claim for claim in judged(case).claims}
    assert [claims[f"decode_speedup{name}"].role for name in ("", "_rtt-50ms")] == ["primary", "secondary"]
    for name in ("identical_prompts", "acceptance_length", "acceptance_rate"):
        assert {name, f"{name}_rtt-50ms"} <= claims.keys()
    trips = next(row for row in case.report["rows"]["rpcs"] if row["arm"] == "rtt-50ms")["round_trips_s"]
    assert f"{max(trips) * 1e3:.2f} ms at most, {len(trips)} of them" in claims["round_trip_rtt-50ms"].wording
    assert claims["decode_speedup_rtt-50ms"].baseline == claims["decode_speedup"].baseline


def test_smoke_is_never_better_than_valid():
    assert judged(honest("smoke")).decision == "valid"
    assert not any(claim.citable for claim in judged(honest("smoke")).claims)


def test_loops_make_the_claim_the_worse_of_both():
    plan = Plan(tokens=96, answer=lambda rng, count: [*(rng.randrange(6, 2048) for _ in range(24)), *([9, 8] * 36)])
    verdict = judged(code_throughput(plan))
    acceptance = next(claim for claim in verdict.claims if claim.id == "acceptance_length")
    assert acceptance.detail["looping_samples"] == 60
    assert acceptance.value == min(acceptance.detail["all_tokens"], acceptance.detail["before_loops"])
    assert verdict.decision != "rejected"


def test_a_slow_down_is_called_one():
    verdict = judged(code_throughput(Plan(step_s=0.1)))
    assert next(c.wording for c in verdict.claims if c.role == "primary").startswith("decode slower:")


def test_pooled_attempts_are_citable_again():
    verdict = second_attempt(code_throughput(Plan(seed=8)))
    primary = next(claim for claim in verdict.claims if claim.role == "primary")
    assert "attempts" not in primary.missing, primary.why
    assert "2 attempts pooled" in primary.wording


def second_attempt(before, run_id="01jd7zk3v8q4w2m6x9c5b7n1t0"):
    case = honest("claim")
    case.record["attempt"].update(number=2, earlier=["01jd7zk3v8q4w2m6x9c5b7n1t0"])
    before.report["run"]["id"] = run_id
    earlier = {"01jd7zk3v8q4w2m6x9c5b7n1t0": before.files()}
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier=earlier)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda case: case.report["config"]["target"].update(name="another"), "another config"),
        (lambda case: case.report["environment"].update(device="metal"), "another environment"),
        (lambda case: case.report["arms"][0].update(code_path="mlx_lm.slow:generate"), "another arms"),
        (lambda case: case.reports.update({"report.json": honest("claim").report}), "this run's own"),
    ],
)
def test_an_earlier_attempt_that_is_another_question_or_would_be_refused_is_not_pooled(change, reason):
    before = code_throughput(Plan(seed=8))
    change(before)
    verdict = second_attempt(before)
    assert verdict.decision == "recorded"
    assert any("cannot be pooled" in why and reason in why for why in verdict.why), verdict.why


def test_another_run_s_report_is_no_earlier_attempt():
    verdict = second_attempt(code_throughput(Plan(seed=8)), run_id="01jd7zk3v8q4w2m6x9c5b7n1t9")
    assert any("its report is of run" in why for why in verdict.why), verdict.why
