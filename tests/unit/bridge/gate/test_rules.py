"""Every rule is broken by its fixture and holds on an honest run."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest

from bridge.gate.catalogue import rules_catalogue
from bridge.gate.facts.outputs import answered
from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.judging import FINDINGS_PER_RULE_MAX, _class, _look, judge
from bridge.gate.rule import RegisteredRule
from bridge.records.verdict import ClaimDecision, Verdict
from tests.corpus.gate.breaks import BREAKS, PASSES, honest
from tests.corpus.gate.builders import Case
from tests.corpus.gate.generations import with_claims

CODES = tuple(entry.code for entry in rules_catalogue())


def verdict(case: Case, authority: str = "host") -> Verdict:
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), authority=authority)


def test_every_rule_has_a_breaking_and_a_passing_fixture():
    assert set(BREAKS) == set(PASSES) == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_breaking_fixture_breaks_its_rule(code):
    authority = "unattested" if code == "G2-AUTHORITY" else "host"
    judged = verdict(BREAKS[code](), authority)
    assert code in {finding.code for finding in judged.findings}
    assert judged.decision != "evidence" or code == "G3-IDLE"


@pytest.fixture(scope="module")
def judged() -> Callable[[Case], Verdict]:
    """Return what judges a case that was judged before by what it came to: most rules pass on the same run."""
    verdicts: dict[bytes, Verdict] = {}

    def judge_once(case: Case) -> Verdict:
        key = pickle.dumps((sorted(case.files().items()), case.record, case.spec))
        if key not in verdicts:
            verdicts[key] = verdict(case)
        return verdicts[key]

    return judge_once


@pytest.mark.parametrize("code", CODES)
def test_the_passing_fixture_does_not(judged, code):
    assert code not in {finding.code for finding in judged(PASSES[code]()).findings}


def test_every_rule_says_what_must_hold_why_and_what_to_do():
    for entry in rules_catalogue():
        assert entry.message.endswith(".")
        assert len(entry.why) > 40, entry.code
        assert len(entry.remedy) > 20, entry.code


def test_no_number_of_mild_findings_hides_a_grave_one():
    """A rule's findings are bounded; a scaled timer makes one mild finding a sample and one grave one at the end."""
    case = honest("claim")
    for sample in case.report["arms"][-1]["samples"]:
        stages = sample["stages"]
        stages["decode_s"] *= 0.3
        stages["total_s"] = stages["prefill_s"] + stages["decode_s"]
    findings = [f for f in verdict(with_claims(case)).findings if f.code == "G4-MARKS"]
    assert len(findings) == FINDINGS_PER_RULE_MAX + 1
    assert findings[0].severity == "reject"


@pytest.mark.parametrize(("extra", "reported"), [(0, False), (1, True)])
def test_no_more_forwards_lack_their_recording_than_ran(extra: int, reported: bool):
    case = honest("smoke")
    arm = case.report["arms"][-1]
    # The last sample keeps the rows in running order.
    sample = max(arm["samples"], key=lambda row: (row["launch"], row["order_index"]))
    most = sample["counters"]["target_forwards"] + sample["counters"]["drafter_forwards"] + 2
    row = {"arm": arm["name"], "component": "graphs", "sample": sample["id"], "reason": "the slot is taken"}
    case.report["fallbacks"].append(row | {"count": most + extra})
    assert ("G3-FALLBACKS" in {finding.code for finding in verdict(case.seal()).findings}) is reported


def two_reports() -> Case:
    """Return an honest run that left two reports of one kind."""
    case = honest("probe")
    case.reports["second.json"] = copy.deepcopy(case.report)
    case.spec["outputs"].append({"path": "second.json", "kind": case.report["kind"], "required": True})
    return case.seal()


def test_every_report_of_a_run_is_judged_and_each_one_declared_is_there():
    case = two_reports()
    case.reports["second.json"]["environment"]["machine"] = "riscv64"
    findings = {(finding.code, finding.report) for finding in verdict(case.seal()).findings}
    assert ("G2-HOST", "second.json") in findings
    assert ("G2-HOST", "report.json") not in findings
    del case.reports["second.json"]
    assert ("G1-DECLARED", "second.json") in {
        (finding.code, finding.report) for finding in verdict(case.seal()).findings
    }


def test_a_report_of_equal_length_is_not_the_recorded_one():
    case = honest("probe").seal()
    case.record["outputs"][0]["sha256"] = "ab" * 32
    assert "G9-OUTPUTS" in {finding.code for finding in verdict(case).findings}


def test_code_of_which_nobody_knows_whether_it_was_changed_has_no_name():
    case = honest("probe")
    case.record["code"]["dirty"] = None
    assert "G2-CODE" in {finding.code for finding in verdict(case.seal()).findings}


def test_the_baseline_is_listed_before_the_candidate():
    case = honest("smoke")
    case.report["arms"].reverse()
    assert any("expected the baseline first" in finding.message for finding in verdict(case.seal()).findings)


def test_a_report_has_the_least_class_of_its_primary_claims():
    claim = next(claim for claim in verdict(honest("probe")).claims if claim.role == "primary")
    every: tuple[ClaimDecision, ...] = ("evidence", "valid", "nothing")
    for decision in every:
        for other in every:
            least = max(decision, other, key=every.index)
            report_class = _class([claim.evolve(decision=decision), claim.evolve(decision=other)])
            assert report_class == ("recorded" if least == "nothing" else least)


def test_what_a_rule_finds_is_cut_behind_the_gravest_and_a_rule_that_breaks_refuses():
    def mild_first(_evidence: Evidence) -> Iterator[Violation]:
        yield from (Violation("mild", f"/{place:02}", severity="note") for place in range(FINDINGS_PER_RULE_MAX))
        yield Violation("grave", "/zz", severity="reject")

    def breaks(_evidence: Evidence) -> Iterator[Violation]:
        raise ValueError("not so")

    def found(check: Callable[[Evidence], Iterator[Violation]]) -> list[Violation]:
        entry = RegisteredRule("G0-TRIED", "bound", "reject", "none", "says.", "since", check)
        looked = _look(entry, Evidence(reports=(), record=None, spec=None, profile={}))
        assert not isinstance(looked, Skip)
        return looked

    assert found(mild_first)[0].message == "grave"
    (broken,) = found(breaks)
    assert (broken.severity, "could not judge" in broken.message) == ("reject", True)


@pytest.mark.parametrize(
    ("text", "right"),
    [("4711", True), ("It is 4711.\n99", True), ("47110", False), ("0\n4711", False), ("", False)],
)
def test_an_answer_is_a_whole_word_of_the_first_line(text: str, right: bool):
    assert answered("4711", text) is right
