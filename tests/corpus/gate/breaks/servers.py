"""Breaks of the rules on inference servers."""

from __future__ import annotations

from tests.corpus.gate.breaks.registry import breaks
from tests.corpus.gate.builders import Case
from tests.corpus.gate.servers import PATH, served


@breaks("G2-ENDPOINT", "served")
def server_that_ran_before(_case: Case) -> Case:
    return served(endpoint=True)


@breaks("G3-APART", "served")
def server_that_burns_the_other_s_turns(case: Case) -> None:
    for turn in case.reports[PATH]["turns"]:
        if turn["arm"] == "baseline":
            turn["cpu_s"]["candidate"] = 0.5 * turn["wall_s"]


@breaks("G5-UNKNOWN", "served")
def server_with_listed_answers(case: Case) -> None:
    for row in case.reports[PATH]["answers"]:
        if row["arm"] == "candidate" and row["half"] == "pinned":
            row["whole_s"] *= 0.2


@breaks("G4-SERVED", "served")
def server_that_refuses_a_request(case: Case) -> None:
    row = next(row for row in case.reports[PATH]["answers"] if row["launch"] == 3 and row["arm"] == "candidate")
    row["error"] = "answers 503: busy"
