"""Which of a program's numbers `workload new` takes where nobody sits at a terminal."""

from __future__ import annotations

import pytest

from bridge.cli.host.workload import choose_number
from bridge.errors import UsageError
from bridge.presets.workloads.trial import Candidate

PRINTED = [Candidate("loss", {"stdout": "a (1)"}, 1.0), Candidate("accuracy", {"stdout": "b (1)"}, 0.5)]
IN_FILES = [
    Candidate("f1", {"file": "m.json", "pointer": "/f1"}, 0.7),
    Candidate("y", {"file": "c.csv", "column": "y"}, 3),
]
TIMES = [
    Candidate(name, {"file": "out.json", "pointer": f"/results/0/{name}"}, 0.1)
    for name in ("mean", "stddev", "median", "max")
]


@pytest.mark.parametrize(
    ("candidates", "name", "chosen"),
    [
        (PRINTED + IN_FILES, None, "accuracy"),
        (IN_FILES, None, "f1"),
        (TIMES, None, "mean"),
        (TIMES[1:2], None, "stddev"),
        (TIMES + PRINTED, None, "accuracy"),
        (IN_FILES[1:], None, None),
        (IN_FILES[1:], "y", "y"),
        (PRINTED, "loss", "loss"),
        (PRINTED, "none", None),
    ],
)
def test_a_number_is_named_or_the_last_that_was_printed(candidates, name, chosen):
    candidate = choose_number(candidates, name)
    assert (None if candidate is None else candidate.name) == chosen


def test_a_number_that_the_program_did_not_leave_is_refused_with_those_it_left():
    with pytest.raises(UsageError, match="left no number 'auc'; it left loss, accuracy"):
        choose_number(PRINTED, "auc")
