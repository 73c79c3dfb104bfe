"""Late stamps of a runner that had to wait for a core are no contradiction, and nothing may be quoted from them."""

from __future__ import annotations

import pytest

from bridge.gate.judging import judge
from bridge.records.verdict import Verdict
from tests.corpus.gate.breaks import BREAKS, honest
from tests.corpus.gate.builders import Case
from tests.corpus.gate.generations import with_claims


def judged(case: Case) -> Verdict:
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def share_of_others(case: Case, share: float) -> Case:
    for sample in case.record["telemetry"]["samples"]:
        sample["other_cpu_share"] = share
    return case.seal()


def delayed(case: Case) -> Case:
    """Stamp every first token 12 ms late, as a runner does that waits for a core."""
    for mark in case.record["sample_marks"]:
        if mark["event"] == "first_token":
            mark["t_s"] += 0.012
    return case


def severities(case: Case) -> set[str]:
    return {finding.severity for finding in judged(case).findings if finding.code == "G4-MARKS"}


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_stamps_a_little_late_stop_quoting_and_reject_nothing(share: float) -> None:
    case = share_of_others(delayed(honest("smoke")), share)
    assert severities(case) == {"violation"}
    assert judged(case).decision == "valid"


def test_another_timer_on_a_quiet_machine_contradicts_the_report() -> None:
    case = share_of_others(BREAKS["G4-MARKS"](), 0.05)
    assert "reject" in severities(case)
    assert judged(case).decision == "rejected"


def test_times_far_apart_on_a_busy_machine_stop_quoting() -> None:
    assert severities(share_of_others(BREAKS["G4-MARKS"](), 0.9)) == {"violation"}


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_a_missing_mark_is_a_contradiction_whatever_the_load(share: float) -> None:
    case = share_of_others(honest("smoke"), share)
    case.record["sample_marks"] = case.record["sample_marks"][:-1]
    assert "reject" in severities(case.seal())


def test_a_claim_measured_on_a_busy_machine_is_not_granted() -> None:
    case = share_of_others(delayed(honest("claim")), 0.9)
    verdict = judged(case)
    assert verdict.decision != "evidence"
    assert not any(claim.citable for claim in verdict.claims if claim.kind in {"ratio", "absolute"})


def test_a_timer_that_lies_cannot_hide_behind_load_and_be_quoted() -> None:
    case = share_of_others(BREAKS["G4-MARKS"](), 0.9)
    assert not any(claim.citable for claim in judged(case).claims if claim.kind in {"ratio", "absolute"})


def test_a_busy_machine_excuses_no_time_that_is_mostly_missing() -> None:
    case = share_of_others(honest("claim"), 0.9)
    for sample in case.report["arms"][-1]["samples"]:
        stages = sample["stages"]
        stages["decode_s"] *= 0.2
        stages["total_s"] = stages["prefill_s"] + stages["decode_s"]
    assert "reject" in severities(with_claims(case))
