"""A slow-down is shown as one, with where the time goes."""

from __future__ import annotations

import pytest

from bridge.gate.render.table import slowdown
from bridge.records.verdict import ClaimResult


def claim(name: str, value: float | None) -> ClaimResult:
    return ClaimResult(
        id=name, metric=name, role="primary", value=value, interval=None, confidence=None, unit="ratio", n=6,
        baseline=None, wording="", kind="ratio", decision="valid", premises=(), detail={},
    )  # fmt: skip


def test_a_slower_candidate_says_what_a_step_costs_and_brings() -> None:
    reason = slowdown((claim("decode_speedup", 0.8), claim("acceptance_length", 2.76)))
    assert reason == "slower, because a step costs 3.45 native tokens here and commits 2.76"


@pytest.mark.parametrize("speed", [None, 1.0, 1.5, 0.0])
def test_nothing_is_explained_where_there_is_no_slow_down(speed: float | None) -> None:
    assert slowdown((claim("decode_speedup", speed), claim("acceptance_length", 2.76))) is None


def test_without_a_recomputed_acceptance_no_reason_is_made_up() -> None:
    assert slowdown((claim("decode_speedup", 0.8),)) is None
