"""Breaks of the rules on an owner's own program."""

from __future__ import annotations

from tests.corpus.gate.breaks.registry import breaks
from tests.corpus.gate.builders import Case, sha
from tests.corpus.gate.workloads import paired


@breaks("G4-METRICS", "trained")
def number_out_of_bounds(case: Case) -> None:
    case.reports["repeat-2/report.json"]["metrics"]["final_loss"] = 1e9


@breaks("G2-PROGRAMS", "trained")
def program_changed_after_it_was_read(case: Case) -> None:
    case.record["code"]["programs"][0]["sha256"] = sha("another train.py")


@breaks("G5-SEEDS", "trained")
def seed_that_somebody_chose(case: Case) -> None:
    case.spec["commands"][3]["seed"] = 42


@breaks("G2-CONFIRMED", "trained")
def loss_that_comes_out_otherwise(case: Case) -> None:
    case.record["commands"][-1]["answer"] = '{"final_loss": 9.9}'


@breaks("G5-PAIRS", "paired")
def too_few_pairs(_case: Case) -> Case:
    return paired((0.1,) * 4)


@breaks("G3-WAIT4", "paired")
def baseline_that_sleeps(_case: Case) -> Case:
    return paired(busy=(0.03, 0.98))
