"""What the planner says beside what the loop really gets on a virtual clock, over links and targets of many kinds."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from statistics import fmean

import pytest

from engine.distributed.placement import MARGIN, DrafterTerms, PlacementSnapshot, plan
from tests.fakes import virtual_loop as virtual

pytestmark = pytest.mark.ci

LONGEST, DRAFT_MS, TOKENS, SEEDS = 7, 3.0, 1024, 2
TARGETS_MS, RATES, TRIPS_MS = (20.0, 40.0, 100.0), (0.7, 0.8), (20.0, 50.0, 100.0, 150.0)


@cache
def chances(seed: int) -> tuple[float, ...]:
    drawn = random.Random(seed)
    return tuple(drawn.random() for _ in range(2 * TOKENS))


def speed(rate: float, wait_ms: float, trip_ms: float, seed: int) -> float:
    """Return the loop's speed with a drafter whose every token is right with a probability, against plain decoding."""
    right = chances(seed)
    return virtual.speed(
        TOKENS,
        wait_ms=wait_ms,
        trip_ms=trip_ms,
        answers=lambda _: True,
        right=lambda place: right[place] < rate,
    )[0]


def test_the_planner_and_the_loop_agree_on_every_link() -> None:
    contradictions, asked_there = [], 0
    for target_ms, rate, trip_ms in product(TARGETS_MS, RATES, TRIPS_MS):
        verify_s = target_ms * (1 + virtual.ROW_SHARE * LONGEST) / 1e3
        terms = DrafterTerms("there", (rate,) * LONGEST, verify_s, DRAFT_MS / 1e3, trip_ms / 1e3)
        placed = plan(PlacementSnapshot(target_ms / 1e3, (terms,)))
        # The virtual target takes as long as it does: the link is as much nearer.
        scale = virtual.TARGET_MS / target_ms
        gain = fmean(speed(rate, scale * (trip_ms + DRAFT_MS), scale * trip_ms, seed) for seed in range(SEEDS))
        asked_there += placed.node is not None
        if (placed.node is not None) != (gain >= MARGIN):
            contradictions.append((target_ms, rate, trip_ms, placed.reasons[0], round(gain, 2)))
    assert contradictions == []
    assert 0 < asked_there < len(TARGETS_MS) * len(RATES) * len(TRIPS_MS)
