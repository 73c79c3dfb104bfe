"""The table of what checks decide is of these checks, and taking them out one after another keeps one of a pair."""

from __future__ import annotations

import re

from bridge.gate.catalogue import rules_catalogue
from bridge.gate.judging import judge
from tests.corpus.gate.breaks import BREAKS
from tests.gate_ablation import KEPT, PAGE, Outcome, decided, sequence

FIRST, SECOND = "G1-RUN", "G1-SPEC"


def of(refusing: tuple[str, ...], source: str = "cheat") -> Outcome:
    return Outcome("a case", source, refusing, {"speed": (), "identity": None})


def test_the_table_has_a_row_for_every_check_and_a_reason_for_each_that_decides_nothing() -> None:
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (G[0-9]-[A-Z0-9]+) \| [a-z]+ \|", text, re.M)
    assert rows == [entry.code for entry in rules_catalogue()], "python -m tests.gate_ablation --write"
    assert "no reason yet" not in text
    assert all(f"| {code} | {why} |" in text for code, why in KEPT.items())


def test_of_two_checks_that_refuse_the_same_run_only_one_can_go() -> None:
    every = [of((FIRST, SECOND))]
    assert decided(FIRST, every, set()) == []
    gone, _ = sequence(every, reasons={})
    assert (FIRST in gone, SECOND in gone) == (True, False)


def test_a_claim_that_something_else_takes_too_is_decided_by_no_check() -> None:
    outcome = of((FIRST,))
    assert outcome.quotable({FIRST}) == {"speed"}
    assert outcome.quotable(set()) == frozenset()


def test_an_outcome_says_which_checks_stand_against_each_claim() -> None:
    case = BREAKS["G2-MODELS"]()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    outcome = Outcome.of("G2-MODELS", "break", verdict)
    assert "G2-MODELS" in outcome.refusing
    assert {"G2-MODELS", "G5-DESIGN"} <= set(outcome.claims["identical_prompts"] or ())
