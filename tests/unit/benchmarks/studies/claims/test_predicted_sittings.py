"""What six sittings predict, and which later ones lie there."""

from __future__ import annotations

import math

import pytest

from benchmarks.studies.claims.predicted_sittings import FIRST, predicted, summary

NOISE = (0.01, -0.01, 0.01, -0.01, 0.01, -0.01)


def row(number: int, load: float | None, shift: float) -> dict[str, object]:
    """A sitting whose ratio is 1.5 alone and grows by a tenth at half of the machine, and by a shift."""
    share = (load or 0.0) / 100.0
    return {
        "sitting": number, "load": load, "others_share": share,
        "logs": [[math.log(1.5) + 0.2 * share + shift, block] for block in range(5)],
    }  # fmt: skip


def entries(*shifts: float) -> list[dict[str, object]]:
    rows = [row(number, load, NOISE[number - 1]) for number, load in enumerate(FIRST, 1)]
    rows += [row(number, 25, shift) for number, shift in enumerate(shifts, len(FIRST) + 1)]
    return [{"rows": [each]} for each in rows]


def test_a_prediction_is_of_the_load_that_is_asked_for():
    rows = [row(number, load, NOISE[number - 1]) for number, load in enumerate(FIRST, 1)]
    (low, high), (_, alone) = predicted(rows, 0.5), predicted(rows, 0.0)
    assert low < 1.5 * math.exp(0.1) < high
    assert alone < high


@pytest.mark.parametrize(("shift", "inside"), [(0.0, 1), (0.5, 0), (-0.5, 0)])
def test_a_later_sitting_lies_inside_or_is_said_to_be_outside(shift: float, inside: int):
    lines = summary(entries(shift))
    assert lines[-1] == f"{inside} of 1 inside"
    assert ("OUTSIDE" in lines[-2]) is (inside == 0)


def test_nothing_is_predicted_before_six_sittings():
    assert summary(entries()[:5]) == ["5 of 6 sittings that predict"]
