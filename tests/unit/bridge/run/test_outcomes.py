"""The one table of outcomes: every reason, strongest first; help, guides and both programs are made from it."""

from __future__ import annotations

from typing import get_args

import pytest

from bridge import errors
from bridge.cli.table.documents import BEGIN
from bridge.errors import UsageError
from bridge.records.claim import Reason
from bridge.records.verdict import Premise, PremiseResult
from bridge.run.outcomes import (
    OUTCOMES,
    EndedError,
    Ending,
    RunOutcome,
    exit_code_of,
    exit_meanings,
    of_error,
    strongest,
)
from bridge.run.requirement import PREMISES, Requirement
from tests.drift import ROOT
from tests.generated.client_documents import DOCUMENTS
from tests.unit.bridge.cli.looking import claim
from tests.unit.bridge.publish.records import VERDICT


def test_the_table_holds_every_reason_a_claim_can_name_and_what_a_requester_asks():
    assert set(OUTCOMES) == {*get_args(Reason), "pending", "below_required", "unwanted"}


def test_an_earlier_reason_is_a_stronger_one():
    order = (
        "request_rejected", "policy_refused", "cancelled", "timed_out", "runner_lost", "interrupted", "program_failed",
        "gate_rejected", "passed",
    )  # fmt: skip
    assert [reason for reason in OUTCOMES if reason in order] == list(order)


def test_every_error_ends_in_a_code_that_has_a_meaning():
    todo = [errors.KakeyaError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        assert kind.exit_code in exit_meanings()


@pytest.mark.parametrize(
    ("reason", "decision", "required", "code"),
    [
        ("passed", "evidence", None, 0),
        ("passed", "valid", None, 0),
        ("passed", "recorded", None, 0),
        ("passed", "rejected", None, 1),
        ("passed", "valid", "evidence", 1),
        ("passed", "valid", "outputs", 0),
        ("passed", "valid", "times", 1),
        ("passed", "evidence", "machine", 1),
        ("passed", "valid", "identical_prompts:evidence", 0),
        ("passed", "valid", "decode_speedup:evidence", 1),
        ("passed", "valid", "unheard_of:evidence", 1),
        ("passed", None, None, 1),
        ("gate_rejected", "rejected", None, 1),
        ("program_failed", "evidence", None, 4),
        ("something new", "evidence", None, 70),
    ],
)
def test_a_verdict_counts_only_where_the_program_did_its_work(reason, decision, required, code):
    requirement = None if required is None else Requirement.parse(required)
    assert exit_code_of(reason, None if decision is None else verdict(decision), requirement) == code


def verdict(decision):
    """Return a verdict whose primary claim lacks times, and whose secondary one lacks nothing."""
    met = PremiseResult(premise="outputs", held=True, seen_by="runner", rules=())
    fallen = PremiseResult(premise="times", held=decision == "evidence", seen_by="runner", rules=(), why=("G4-TURNS",))
    claims = (
        claim(id="decode_speedup", decision="evidence" if decision == "evidence" else "valid", premises=(met, fallen)),
        claim(id="identical_prompts", role="secondary", premises=(met,)),
    )
    return VERDICT.evolve(decision=decision, claims=claims)


@pytest.mark.parametrize("text", ["valid", "decode_speedup:times", ":evidence", "evidence:", "speed up:evidence", ""])
def test_what_can_be_required_is_evidence_a_premise_or_evidence_of_a_claim(text):
    with pytest.raises(UsageError, match="expected evidence, CLAIM:evidence, or a premise"):
        Requirement.parse(text)


def test_every_premise_of_the_gate_can_be_required():
    assert get_args(Premise) == PREMISES


@pytest.mark.parametrize("reason", get_args(Reason))
def test_host_and_requester_end_in_the_same_code(reason):
    assert exit_code_of(reason, None, None) == (1 if reason == "passed" else Ending(reason).exit_code)


def test_a_spooled_result_ends_as_one_that_is_not_delivered():
    assert RunOutcome("0" * 26, Ending("passed"), None, "spooled").exit_code == OUTCOMES["publish_failed"].exit_code
    assert RunOutcome("0" * 26, Ending("passed"), None, "copied").exit_code == 0


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 8), 8), ((8, 1), 1), ((1, 4, 3), 3), ((3, 5), 5), ((5, 6, 7), 7), ((7, 2), 2), ((2, 70), 70), ((0, 0), 0)],
)
def test_several_runs_end_in_the_code_that_needs_attention_first(codes, code):
    assert strongest(codes) == code


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EndedError(Ending("cancelled")), "cancelled"),
        (errors.UsageError("no"), "request_rejected"),
        (errors.PolicyRefusedError("no"), "policy_refused"),
        (errors.BusError("no"), "infrastructure"),
        (KeyError("limits"), "infrastructure"),
    ],
)
def test_an_exception_on_the_host_becomes_an_ending(error, reason):
    assert of_error(error).reason == reason


def test_the_remedies_name_commands_that_exist():
    from bridge.cli.table.commands import MAC

    for row in OUTCOMES.values():
        if row.remedy is not None:
            program, *words = row.remedy.split()
            assert program == "kakeya-mac"
            assert MAC.find(words)[0] is not None


def test_the_section_for_agents_stands_in_a_guide():
    pages = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS)
    assert BEGIN in pages
