"""A verdict is shown without what a report smuggled into it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bridge.gate import render
from bridge.gate.judging import judge
from tests.corpus.gate.breaks import BREAKS, honest

EVIL = "\x1b[31m::error::pwned\n@everyone ![x](http://e.vil/p.png) <script> | %0A::set-env::"


def evil():
    case = honest("suite")
    row = case.report["rows"]["tests"][0]
    row["id"] = f"tests/{EVIL}::t"
    case.report["rows"]["tests"].append(dict(row))
    case.seal()
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def honest_claim():
    case = honest("claim")
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value()), case.record_value()


def test_the_table_aligns_its_facts_and_names_what_a_claim_lacks():
    verdict, record = honest_claim()
    lines = render.table(verdict, record).splitlines()
    assert lines[0].startswith("passed      measured (claim)   ")
    assert lines[1].startswith("quote       not yet, because the runner handed out no turns for it")
    assert next(line for line in lines if line.startswith("speed")).endswith("its arms took (G4-TURNS)")
    assert next(line for line in lines if line.startswith("identity")).endswith("fp32   may be quoted")


def test_a_smoke_table_names_what_its_claims_lack():
    case = honest("smoke")
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    lines = render.table(verdict, None).splitlines()
    assert lines[1].startswith("quote       not yet, because a smoke run is a first look")
    assert next(line for line in lines if line.startswith("identity")).endswith("fp32   not yet")
    assert next(line for line in lines if line.startswith("speed")).endswith("(G4-TURNS)")
    assert not any(line.startswith("inputs") for line in lines), "what stands with the answer is not said again"


def test_the_first_sentence_says_what_may_be_quoted_or_what_stopped_it():
    verdict, _ = honest_claim()
    assert verdict.headline.startswith("May be quoted: identical on these 60 prompts, 1400 tokens")
    assert "Not the primary claim: the runner handed out no turns" in verdict.headline
    assert render.markdown(verdict).startswith("May be quoted")
    case = BREAKS["G4-MARKS"]()
    stopped = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert stopped.headline.startswith("Refused, because")
    assert "(G4-MARKS)" in stopped.headline


@pytest.mark.parametrize(
    ("reason", "message", "sentence"),
    [
        ("cancelled", "cancelled before it started", "nothing ran: cancelled before it started"),
        ("expired", None, "nothing ran: expired"),
        ("runner_lost", "runner mac vanished", "nothing is known of what ran: runner mac vanished"),
    ],
)
def test_the_first_sentence_of_a_run_that_never_ran_is_how_it_ended(reason, message, sentence):
    case = never_ran(reason, message)
    verdict = judge(case.run_id, case.files(), case.record_value(), None)
    assert verdict.headline == f"Refused, because {sentence}."
    assert "G0-RECORD" not in {finding.code for finding in verdict.findings}


@pytest.mark.parametrize("left", ["commands", "outputs", "program_exit"])
def test_a_run_of_which_anything_is_on_record_needs_its_job_spec(left):
    case = never_ran("cancelled", None)
    case.record[left] = honest("suite").record[left]
    verdict = judge(case.run_id, case.files(), case.record_value(), None)
    assert "(G0-RECORD)" in verdict.headline


def never_ran(reason, message):
    """Return a run that ended before it had a job spec."""
    case = honest("suite")
    case.reports.clear()
    case.raw.clear()
    case.record |= {"reason": reason, "message": message, "executor_ok": False, "program_exit": None, "started": None}
    case.record |= {"commands": [], "outputs": [], "code": None, "telemetry": None, "imported": None}
    return case


def test_report_text_cannot_steer_a_terminal():
    assert "\x1b" not in render.table(evil(), None)


def test_report_text_cannot_become_markup():
    shown = render.markdown(evil())
    assert "![x]" not in shown
    assert "<script>" not in shown
    assert "@everyone" not in shown
    assert "\x1b" not in shown


def test_a_host_s_name_is_no_link():
    assert "www." not in render.markdown(evil().evolve(headline="see www.example.org")).lower()


def test_markdown_shows_nothing_that_turns_or_hides_text() -> None:
    shown = render.markdown(evil().evolve(headline="3.1x \u202ex9.0\u2066 \x1b[8mslower\x9b"))
    assert "3.1x x9.0 \\[8mslower" in shown
    assert all(char.isprintable() or char in "\n\u200b" for char in shown)


def test_report_text_cannot_start_a_workflow_command():
    for line in render.annotations(evil()).splitlines():
        assert line.startswith(("::error title=", "::warning title=", "::notice title="))
    assert "\n::set-env" not in render.annotations(evil())


def test_junit_is_well_formed_and_counts_failures():
    tree = ET.fromstring(render.junit(evil()))
    assert int(tree.attrib["failures"]) == len(tree.findall("testcase/failure")) > 0
