"""A reduced mutation score: the whole one is `make gate-score`."""

from __future__ import annotations

import json

import pytest

from tests.corpus.gate.breaks import honest
from tests.corpus.gate.mutator import INFORMATIONAL, Judge, Mutant, mutate, score
from tests.gate_score import forged, structural


# A single time of a study that nobody stamps follows from nothing else: those kinds are not counted here.
@pytest.mark.parametrize("name", ["probe", "suite", "bounded_kv"])
def test_few_single_changes_survive(name):
    documents = ("report", "record") if name == "probe" else ("report",)
    tally = score(honest(name), 1, seed=5, most=150, documents=documents)
    assert structural(tally) == 1.0
    survivors = sum(len(operators) for operators in tally.survivors.values())
    assert survivors <= 3, dict(tally.survivors)


@pytest.mark.ci
def test_a_sample_of_changes_to_a_comparison_is_noticed():
    tally = score(honest("claim"), 1, seed=6, most=30)
    assert sum(len(operators) for operators in tally.survivors.values()) <= 2, dict(tally.survivors)


def test_the_mutator_notices_when_nothing_is_checked():
    """A field nobody looks at survives, so a score below one is possible."""
    judging = Judge(honest("probe"))
    judging.listed = {}
    assert judging.outcome(Mutant("record", "/log_bytes", ("log_bytes",), "x2", "bytes"))[0] == "survived"


def test_mutation_changes_one_place_and_leaves_the_original_alone():
    value = {"a": [1, 2], "b": {"c": 0.5}}
    (changed,) = mutate(value, ("b", "c"), "x2")
    assert changed == {"a": [1, 2], "b": {"c": 1.0}}
    assert value["b"]["c"] == 0.5
    assert mutate(value, ("a", 0), "duplicate") == ({"a": [1, 1, 2], "b": {"c": 0.5}},)


def test_every_informational_path_has_a_reason():
    rows = json.loads(INFORMATIONAL.read_text("utf-8"))
    assert len({(row["document"], row["path"]) for row in rows}) == len(rows)
    assert all(len(row["reason"]) > 30 for row in rows)


@pytest.mark.parametrize(("factor", "marks", "decision"), [(0.9, False, "rejected"), (0.3, True, "valid")])
def test_coordinated_forgeries_fall_as_long_as_the_runner_s_own_stamps_are_true(factor, marks, decision):
    """No rule holds against somebody who writes the runner's stamps too: that is what its signature is for."""
    from bridge.gate.judging import judge

    case = forged(factor, marks=marks)
    assert judge(case.run_id, case.files(), case.record_value(), case.spec_value()).decision == decision
