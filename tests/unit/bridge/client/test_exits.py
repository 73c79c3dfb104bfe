"""Exit codes: one table, the same on both sides, strongest reason first."""

from __future__ import annotations

from typing import get_args

import pytest

from bridge import errors
from bridge.records import Reason
from bridge.run import exits
from bridge.run.outcomes import EXIT_CODES


def test_requester_and_runner_agree_on_every_reason():
    assert dict(EXIT_CODES) == exits.OF_REASON
    assert set(get_args(Reason)) == set(exits.OF_REASON)


def test_every_error_ends_in_a_code_that_has_a_meaning():
    todo = [errors.KakeyaError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        assert kind.exit_code in exits.MEANINGS


@pytest.mark.parametrize(
    ("reason", "decision", "required", "code"),
    [
        ("passed", "evidence", "evidence", 0),
        ("passed", "valid_not_citable", "valid", 0),
        ("passed", "valid_not_citable", "evidence", 1),
        ("passed", None, "valid", 1),
        ("gate_rejected", "rejected", "valid", 1),
        ("program_failed", "evidence", "valid", 4),
        ("something new", "evidence", "valid", 70),
    ],
)
def test_a_verdict_counts_only_where_the_program_did_its_work(reason, decision, required, code):
    assert exits.of_run(reason, decision, required) == code


def test_the_strongest_reason_is_the_one_that_happened_first():
    assert exits.strongest(("passed", "program_failed", "cancelled")) == "cancelled"
    assert exits.strongest(("gate_rejected", "request_rejected")) == "request_rejected"
