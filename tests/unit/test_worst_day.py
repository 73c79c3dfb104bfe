"""Days on which state, bus, clock or keys are lost: tests run each such row of the guide, and read its words."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
GUIDE: Final = ROOT / "docs" / "guides" / "worst-day.md"
UNIT: Final = "tests/unit/bridge/runner"
RUNNER: Final = "tests/integration/runner"
TRUST: Final = "tests/unit/bridge/trust"

DAYS: Final = {
    "the owner changed or broke the policy of a running runner": [
        f"{UNIT}/test_policy_in_force.py::test_nothing_is_taken_under_a_file_that_cannot_be_used_and_the_owner_is_told_why",
        "tests/unit/bridge/cli/test_run_waits.py::test_a_runner_that_cannot_take_it_is_named_with_its_reason",
    ],
    "somebody replaced the bus's root": [
        f"{TRUST}/test_root_keeping.py::test_a_root_that_was_deleted_or_forged_comes_back_and_a_higher_one_is_taken",
        "tests/integration/trust/test_root_over_git.py::test_whoever_can_push_stops_and_misleads_nobody_who_knows_the_root",
    ],
    "somebody deleted the bus record": [
        f"{RUNNER}/test_deleted_record.py::test_a_record_deleted_beside_a_runner_is_put_back",
        f"{RUNNER}/test_deleted_record.py::test_a_record_deleted_while_no_runner_is_there_is_put_back_at_the_next_start",
        f"{RUNNER}/test_deleted_record.py::test_a_stranger_makes_no_second_bus_where_a_root_is",
    ],
    "somebody deleted the claims": [
        f"{RUNNER}/test_deleted_claims.py::test_a_claim_deleted_while_its_run_goes_on_is_put_back_and_the_result_published",
        f"{RUNNER}/test_deleted_claims.py::test_a_claim_deleted_while_its_runner_was_down_is_put_back_and_the_run_followed",
        f"{RUNNER}/test_deleted_claims.py::test_a_claim_deleted_beside_a_second_runner_starts_nothing_again_and_publishes_no_refusal",
    ],
    "a runner's state folder was deleted": [
        f"{UNIT}/test_read_back.py::test_a_state_that_is_gone_or_old_comes_to_the_same",
        f"{UNIT}/test_journal.py::test_a_file_that_a_power_cut_left_is_moved_aside_or_is_sound_and_older",
    ],
    "the remote lost or damaged an object": [
        f"{RUNNER}/test_bus_repair.py::test_a_lost_object_of_this_runner_is_shown_first_and_pushed_again",
        f"{RUNNER}/test_bus_repair.py::test_a_request_branch_with_a_result_is_made_again_from_the_runs_end",
        f"{RUNNER}/test_bus_repair.py::test_a_request_that_nobody_has_is_named_and_the_bus_goes_on",
        f"{RUNNER}/test_bus_repair.py::test_of_an_object_with_a_flipped_bit_the_file_is_named_that_somebody_removes_there",
    ],
    "bus and state lost the same request": [
        f"{UNIT}/test_read_back.py::test_what_bus_and_state_have_both_lost_is_not_run_again_but_named",
        f"{UNIT}/test_read_back.py::test_what_another_s_beacon_or_log_shows_as_begun_is_refused_by_name",
    ],
    "the git host goes away": [
        f"{RUNNER}/test_bus_move.py::test_a_bus_that_moved_has_all_of_its_refs_and_tells_everybody_in_one_line",
        f"{RUNNER}/test_bus_move.py::test_what_runs_while_its_bus_moves_ends_and_is_carried_and_each_runner_says_where_to_go_on",
        f"{RUNNER}/test_bus_move.py::test_where_the_old_place_is_gone_the_owner_opens_the_new_one_as_it_is",
    ],
    "two machines run under one name": [
        f"{UNIT}/test_twins.py::test_a_copy_beside_a_living_original_takes_nothing_and_does_not_start",
        f"{UNIT}/test_twins.py::test_of_two_that_meet_later_the_one_that_started_later_takes_no_more",
    ],
    "the bus's owner revoked or retired a runner": [
        f"{TRUST}/test_root_keeping.py::test_a_runner_whose_key_the_owner_ended_is_told_and_takes_no_more",
    ],
    "a runner's clock is wrong": [
        f"{UNIT}/test_clock_watch.py::test_two_that_agree_against_it_stop_a_runner_which_says_so",
        f"{UNIT}/test_clock_watch.py::test_against_one_other_it_goes_on_and_ends_nothing_as_expired",
    ],
    "a runner's key (`identity/`) was deleted": [
        f"{UNIT}/test_attesting.py::test_a_runner_whose_key_is_gone_takes_nothing_and_says_how_to_go_on",
    ],
    "you own a bus from two machines": [
        f"{TRUST}/test_owner_in_two_places.py::test_a_change_over_a_root_that_this_account_did_not_see_is_refused_and_loses_no_revocation",
        f"{TRUST}/test_owner_in_two_places.py::test_what_the_refusal_says_to_do_unites_both_roots_and_the_change_goes_through",
    ],
}  # fmt: skip
OTHERS: Final = re.compile(
    r"you |your |Ctrl-C|only the host|a request's tree|the (runner|remote|request|host|program|gate|owner's|embedded)|"
    r"somebody changed a result"
)
"""Rows of other days, by how they begin."""
_TELLING_CHARS: Final = 12  # a shorter piece of a message says nothing


def rows() -> dict[str, str]:
    """Return what is seen on each day, by what happened."""
    lines = [line.split("|") for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {cells[1].strip(): cells[2] for cells in lines[1:]}


def row_of(day: str) -> str:
    matching = [row for row in rows() if row.startswith(day)]
    assert len(matching) == 1, f"{len(matching)} rows of {GUIDE.name} begin with {day!r}; expected one"
    return matching[0]


@cache
def read_tests(path: str) -> tuple[frozenset[str], str]:
    """Return the names of a file's tests, and what strings they compare with."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    names = frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return names, "\n".join(strings)


@pytest.mark.parametrize("day", DAYS)
def test_a_row_of_these_days_is_run_by_tests_that_are_there(day):
    row_of(day)
    for test in DAYS[day]:
        path, _, name = test.partition("::")
        assert name in read_tests(path)[0], f"{day}: {path} has no {name}"


@pytest.mark.parametrize("day", DAYS)
def test_what_the_guide_quotes_is_what_those_tests_read(day):
    quoted = re.findall(r"`([^`]+)`", rows()[row_of(day)])
    pieces = [piece.strip() for quote in quoted for piece in quote.split("…") if len(piece.strip()) >= _TELLING_CHARS]
    read = "\n".join(read_tests(test.partition("::")[0])[1] for test in DAYS[day])
    assert not pieces or any(piece in read for piece in pieces), f"{day}: no test reads any of {pieces}"


def test_every_row_is_of_these_days_or_of_others():
    days = {row_of(day) for day in DAYS}
    strangers = [row for row in rows() if row not in days and not OTHERS.match(row)]
    assert strangers == [], "name in DAYS the tests that run these rows"
