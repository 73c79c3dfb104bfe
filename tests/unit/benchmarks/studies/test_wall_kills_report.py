"""The committed kills of runs by names left nothing."""

from __future__ import annotations

from benchmarks.studies.report import report_of
from benchmarks.studies.sandbox.wall_kills import KILLS, VICTIMS, cases
from benchmarks.studies.study import rows_of

ENTRIES = report_of("wall-kills").entries()
ROWS = rows_of(ENTRIES)


def test_the_report_has_every_case_and_each_row_names_its_seed():
    assert sorted(entry["case"] for entry in ENTRIES) == sorted(cases())
    assert all(
        row["seed"] == entry["case"] and len(row["kills"]) == KILLS for entry in ENTRIES for row in entry["rows"]
    )


def test_at_least_a_hundred_supervisors_were_killed_some_before_and_most_while_a_program_ran():
    kills = [kill for row in ROWS for kill in row["kills"] if kill["killed"] == "supervisor"]

    assert len(kills) >= 100
    assert 0 < sum(kill["namespaces"] == 0 for kill in kills) < len(kills) / 2
    assert {kill["ending"] for kill in kills} == {"killed"}


def test_nothing_was_left_and_nothing_stayed_open():
    kills = [kill for row in ROWS for kill in row["kills"]]

    assert len(kills) == KILLS * sum(VICTIMS.values())
    assert [kill for kill in kills if kill["left"]] == []
