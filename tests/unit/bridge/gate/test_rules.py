"""Every rule is broken by its fixture and holds on an honest run."""

from __future__ import annotations

import pytest

from bridge.gate import judge, rules_catalogue
from bridge.gate.judging import FINDINGS_PER_RULE_MAX
from bridge.records import Verdict
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
    assert judged.decision != "evidence" or code in {"G3-IDLE", "G6-LOOPS"}


@pytest.mark.parametrize("code", CODES)
def test_the_passing_fixture_does_not(code):
    assert code not in {finding.code for finding in verdict(PASSES[code]()).findings}


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
    found = [f for f in verdict(with_claims(case)).findings if f.code == "G4-MARKS"]
    assert len(found) == FINDINGS_PER_RULE_MAX + 1
    assert found[0].severity == "reject"


@pytest.mark.parametrize(("extra", "found"), [(0, False), (1, True)])
def test_no_more_forwards_lack_their_recording_than_ran(extra: int, found: bool):
    case = honest("smoke")
    arm = case.report["arms"][-1]
    # The last sample keeps the rows in running order.
    sample = max(arm["samples"], key=lambda row: (row["launch"], row["order_index"]))
    most = sample["counters"]["target_forwards"] + sample["counters"]["drafter_forwards"] + 2
    row = {"arm": arm["name"], "component": "graphs", "sample": sample["id"], "reason": "the slot is taken"}
    case.report["fallbacks"].append(row | {"count": most + extra})
    assert ("G3-FALLBACKS" in {finding.code for finding in verdict(case.seal()).findings}) is found
