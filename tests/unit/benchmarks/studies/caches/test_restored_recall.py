"""Restored recall: every loss is a case of each seed, named as it is trained."""

from __future__ import annotations

from benchmarks.studies.caches import restored_recall
from engine.restoration.settings import LOSSES


def test_every_loss_is_trained_as_its_case_says():
    cases = restored_recall.cases()
    assert len(cases) == len(set(cases)) == 45
    further_trainings = [
        (restored_recall.further(how), seed)
        for case in cases
        for how, _, seed in [case.split(", ", 2)[-1].rpartition(", seed ")]
        if " steps" in how
    ]
    assert further_trainings == [((300, loss), str(seed)) for loss in LOSSES for seed in restored_recall.SEEDS]
    assert restored_recall.further("alpha 0.5") == restored_recall.further("") == (0, "kl")
