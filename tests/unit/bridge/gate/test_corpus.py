"""Hand-made cheats meet their own rule; honest but awkward runs are never refused."""

from __future__ import annotations

import pytest

from bridge.gate import judge
from tests.corpus.gate.awkward import AWKWARD
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.cheats import CHEATS
from tests.corpus.gate.studies import BUILDERS

RANK = ("rejected", "valid_not_citable", "evidence")


def judged(case):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


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


@pytest.mark.parametrize("name", ["claim", "probe", "suite", *BUILDERS])
def test_an_honest_claim_run_of_every_kind_is_evidence(name):
    verdict = judged(honest(name))
    assert verdict.decision == "evidence", verdict.why


def test_smoke_is_never_better_than_valid():
    assert judged(honest("smoke")).decision == "valid_not_citable"


def test_loops_make_the_claim_the_worse_of_both():
    from tests.corpus.gate.generations import Plan, code_throughput

    plan = Plan(tokens=96, answer=lambda rng, count: [*(rng.randrange(6, 2048) for _ in range(24)), *([9, 8] * 36)])
    verdict = judged(code_throughput(plan))
    acceptance = next(claim for claim in verdict.claims if claim.id == "acceptance_length")
    assert acceptance.detail["looping_samples"] == 60
    assert acceptance.value == min(acceptance.detail["all_tokens"], acceptance.detail["before_loops"])
    assert verdict.decision != "rejected"


def test_a_slow_down_is_called_one():
    from tests.corpus.gate.generations import Plan, code_throughput

    verdict = judged(code_throughput(Plan(step_s=0.1)))
    assert verdict.headline.startswith("May be quoted: decode slower:")


def test_pooled_attempts_are_citable_again():
    from tests.corpus.gate.generations import Plan, code_throughput

    verdict = second_attempt(code_throughput(Plan(seed=8)))
    assert verdict.decision == "evidence", verdict.why
    assert "2 attempts pooled" in verdict.headline


def second_attempt(before, run_id="01jd7zk3v8q4w2m6x9c5b7n1t0"):
    case = honest("claim")
    case.record["attempt"].update(number=2, earlier=["01jd7zk3v8q4w2m6x9c5b7n1t0"])
    before.report["run"]["id"] = run_id
    earlier = {"01jd7zk3v8q4w2m6x9c5b7n1t0": before.files()}
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier=earlier)


def slower_baseline(case):
    for sample in case.report["arms"][0]["samples"]:
        sample["stages"]["decode_s"] *= 1.3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (slower_baseline, "G4-CLAIM"),
        (lambda case: case.report["config"]["target"].update(name="another"), "another config"),
        (lambda case: case.report["run"].update(preset="another"), "another preset"),
        (lambda case: case.report["environment"].update(device="metal"), "another environment"),
        (lambda case: case.report["arms"][0].update(code_path="mlx_lm.slow:generate"), "another arms"),
        (lambda case: case.reports.update({"report.json": honest("claim").report}), "this run's own"),
    ],
)
def test_an_earlier_attempt_that_is_another_question_or_would_be_refused_is_not_pooled(change, said):
    from tests.corpus.gate.generations import Plan, code_throughput

    before = code_throughput(Plan(seed=8))
    change(before)
    verdict = second_attempt(before)
    assert verdict.decision == "valid_not_citable"
    assert any("cannot be pooled" in why and said in why for why in verdict.why), verdict.why


def test_another_run_s_report_is_no_earlier_attempt():
    from tests.corpus.gate.generations import Plan, code_throughput

    verdict = second_attempt(code_throughput(Plan(seed=8)), run_id="01jd7zk3v8q4w2m6x9c5b7n1t9")
    assert any("its report is of run" in why for why in verdict.why), verdict.why
