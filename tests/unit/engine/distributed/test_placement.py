"""The planner's answer: measured terms in, one node or none out, the same for every order of the same snapshot."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.distributed.placement import MARGIN, DrafterTerms, PlacementSnapshot, plan

NEAR = DrafterTerms("near", accepted=(0.8, 0.7, 0.6), verify_s=0.042, draft_s=0.003, link_s=0.001)
FAR = replace(NEAR, node="far", link_s=0.150)
seconds = st.floats(0.0, 0.2)
terms = st.builds(
    DrafterTerms,
    node=st.sampled_from("abcdef"),
    accepted=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).map(tuple),
    verify_s=st.floats(0.001, 0.2),
    draft_s=seconds,
    link_s=seconds,
    misfit=st.sampled_from(["", "", "another tokenizer"]),
)


def test_a_near_drafter_is_asked_and_a_far_one_is_none() -> None:
    assert plan(PlacementSnapshot(0.040, (FAR, NEAR))).node == "near"
    assert plan(PlacementSnapshot(0.040, (FAR,))).node is None
    assert plan(PlacementSnapshot(0.040, ())).node is None


def test_what_does_not_fit_is_never_asked_and_says_why() -> None:
    placement = plan(PlacementSnapshot(0.040, (replace(NEAR, misfit="another tokenizer"),)))
    assert (placement.node, placement.reasons) == (None, ("near: another tokenizer",))


def test_every_term_is_said_and_what_the_loop_would_do() -> None:
    (near,) = plan(PlacementSnapshot(0.040, (NEAR,))).reasons
    (far,) = plan(PlacementSnapshot(0.040, (FAR,))).reasons
    for part in ("2.70 tokens by a draft of 3", "40.0 ms plain", "42.0 verify of 3", "3.0 draft + 1.0 link", "waiting"):
        assert part in near
    assert "150.0 link, decoding meanwhile: 1.00x, below the margin" in far


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verify_s": float("nan")}, "near: verify not measured"),
        ({"verify_s": 0.0, "draft_s": 0.0, "link_s": 0.0}, "near: verify not measured"),
        ({"accepted": (0.8, float("nan"))}, "near: accepted not measured"),
        ({"accepted": ()}, "near: accepted not measured"),
        ({"draft_s": float("nan"), "link_s": -0.2}, "near: draft, link not measured"),
        ({"draft_s": 0.5, "link_s": -0.499}, "near: link not measured"),
    ],
)
def test_a_term_that_is_no_measurement_is_never_asked_by_and_is_said(changes: dict[str, float], reason: str) -> None:
    placement = plan(PlacementSnapshot(0.040, (FAR, replace(NEAR, **changes))))
    assert (placement.node, placement.reasons[1]) == (None, reason)
    assert plan(PlacementSnapshot(float("nan"), (NEAR,))).reasons == ("near: plain not measured",)


def test_noise_does_not_move_the_drafter_in_use() -> None:
    other = replace(NEAR, node="other", accepted=(0.82, 0.71, 0.6))
    assert plan(PlacementSnapshot(0.040, (NEAR, other), in_use="near")).node == "near"
    assert plan(PlacementSnapshot(0.040, (NEAR, other))).node == "other"
    assert (
        plan(PlacementSnapshot(0.040, (NEAR, replace(other, accepted=(0.95, 0.9, 0.9))), in_use="near")).node == "other"
    )


@settings(deadline=None)
@given(st.lists(terms, max_size=6, unique_by=lambda each: each.node), st.floats(0.001, 0.2), st.integers())
def test_every_order_of_a_snapshot_gives_one_answer_that_holds(drafters, plain_s: float, seed: int) -> None:
    shuffled = drafters[:]
    random.Random(seed).shuffle(shuffled)
    first, second = (plan(PlacementSnapshot(plain_s, tuple(each))) for each in (drafters, shuffled))
    assert first == second
    gains = {each.node: each.gain(plain_s) for each in drafters}
    if first.node is None:
        assert all(gain < MARGIN for gain in gains.values())
    else:
        assert gains[first.node] == pytest.approx(max(gains.values()))
        assert gains[first.node] >= MARGIN
