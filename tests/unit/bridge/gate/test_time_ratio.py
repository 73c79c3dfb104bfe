"""The ratio over prompts rests on every run of the baseline's code, the control as well as the baseline."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.gate.claims.speed import time_ratio
from bridge.gate.facts.samples import Arm, Arms


def arm(role: str, seconds: list[float]) -> Arm:
    samples: list[Any] = [
        {"prompt_id": f"p{number}", "is_warmup": False, "stages": {"decode_s": value}}
        for number, value in enumerate(seconds)
    ]
    return Arm(0, role, role, "path", tuple(samples))


def test_the_control_counts_as_much_as_the_baseline() -> None:
    baseline, control = arm("baseline", [2.0, 4.0, 6.0]), arm("control", [4.0, 6.0, 8.0])
    candidate = arm("candidate", [1.0, 2.0, 3.0])
    ratio = time_ratio(Arms((baseline, control, candidate), baseline, control, (candidate,)), "decode_s")
    assert ratio is not None
    assert ratio.value == pytest.approx((3.0 + 5.0 + 7.0) / 6.0)
    alone = time_ratio(Arms((baseline, candidate), baseline, None, (candidate,)), "decode_s")
    assert alone is not None
    assert alone.value == pytest.approx(2.0)
