"""What follows from a report follows from its observations alone, whatever the report states beside them."""

from __future__ import annotations

import pytest

from bridge.gate.derivation import derive
from bridge.gate.judging import BARE_ID, judge
from tests.corpus.gate.breaks import honest

FOLLOWS = {
    "how many tokens there are": lambda sample: sample.update(output_tokens=4096),
    "the digest of its tokens": lambda sample: sample.update(token_digest="ab" * 32),
    "where its loop begins": lambda sample: sample.update(loop_onset=3),
    "that its answer is right": lambda sample: sample.update(correct=None if sample["correct"] is None else True),
    "how long it took in all": lambda sample: sample["stages"].update(total_s=1e-9),
    "sums over its steps": lambda sample: sample["counters"].update(
        steps=1, target_forwards=1, accepted_tokens=9999, drafted_tokens=9999
    ),
}


def derived(case):
    document = derive(case.run_id, case.files(), case.record_value(), case.spec_value())
    return document.evolve(reports=tuple(report.evolve(sha256=None) for report in document.reports))


@pytest.mark.parametrize("field", FOLLOWS)
@pytest.mark.parametrize("name", ["needle_recall", "turned"])
def test_arms_are_what_their_tokens_and_steps_give(name, field):
    case = honest(name)
    before = derived(case)
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            FOLLOWS[field](sample)
    assert [report.arms for report in derived(case).reports] == [report.arms for report in before.reports]


def test_claims_and_who_ran_what_are_read_nowhere():
    case = honest("turned")
    before = derived(case)
    case.report["claims"] = []
    case.report["run"] |= {"preset": "the-fastest", "params": {"size": 9}, "profile": "smoke"}
    assert derived(case) == before


def test_other_tokens_are_other_outputs():
    case = honest("turned")
    before = derived(case).reports[0].arms
    case.report["arms"][1]["samples"][-1]["tokens"][0] += 1
    after = derived(case).reports[0].arms
    assert (before[0], after[0].tokens) == (after[0], before[0].tokens)
    assert before[1].outputs_sha256 != after[1].outputs_sha256


def test_what_no_rule_could_judge_is_said_and_raises_nothing():
    case = honest("turned")
    case.report["arms"][0]["samples"][0]["tokens"] = []
    document = derive(case.run_id, {**case.files(), "report.json": b"{"}, case.record_value(), case.spec_value())
    assert document.reports[0].kind is None
    assert document.reports[0].problem is not None
    case.report["arms"][1]["samples"] = []
    derived(case)


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31m", "\u202e", "x" * 2000])
def test_a_report_outside_a_run_may_have_any_text_for_a_parameter(text):
    """The schema of reports takes what no record holds."""
    case = honest("turned")
    case.report["run"]["params"] = {"note": text, text: 1}
    report = derive(BARE_ID, case.files(), None, None).report("report.json")
    assert report is not None
    params = report.params or {}
    assert params["note"]
    assert "".join(map(str, (*params, *params.values()))).isprintable()


@pytest.mark.parametrize("field", FOLLOWS)
@pytest.mark.parametrize("name", ["needle_recall", "turned"])
def test_a_lie_about_what_follows_changes_no_claim_and_no_finding(name, field):
    case = honest(name)
    before = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            FOLLOWS[field](sample)
    case.report["claims"] = [{**claim, "value": 9.9} for claim in case.report["claims"]]
    case.report["run"] |= {"preset": "the-fastest", "params": {"size": 9}}
    case.report["config"]["target"]["parameters"] //= 2
    case.seal()
    assert judge(case.run_id, case.files(), case.record_value(), case.spec_value()) == before
