"""The terms of a drafter elsewhere, of decodes that waited for every answer: what the planner is fed."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.bench.remote import RemoteDecode, measured_terms
from engine.distributed.placement import PlacementSnapshot, plan

PLAIN_S, LINK_S = 0.040, 0.001


def decode(*blocks: tuple[int, int]) -> RemoteDecode:
    """Return a decode of one answer a step; each block is how many tokens were drafted and how many of them right."""
    return RemoteDecode(
        tokens=(7,) * (1 + sum(1 + accepted for _, accepted in blocks)),
        drafts=tuple((position, *block) for position, block in enumerate(blocks)),
        proposed=(),
        decode_s=len(blocks) * (PLAIN_S + LINK_S),
        sent={},
        received={},
        answers_s=(LINK_S,) * len(blocks),
        drafting_s=(0.0,) * len(blocks),
        kv_bytes=0,
    )


def test_a_drafter_that_seldom_proposes_is_not_worth_what_its_drafts_are() -> None:
    seldom = measured_terms("lookup", [decode(*[(0, 0)] * 39, (4, 4))])
    assert seldom.accepted == (1 / 40, 1.0, 1.0, 1.0)
    assert plan(PlacementSnapshot(PLAIN_S, (seldom,))).node is None
    always = measured_terms("lookup", [decode(*[(4, 4)] * 40)])
    assert plan(PlacementSnapshot(PLAIN_S, (always,))).node == "lookup"


def test_a_drafter_that_never_proposes_was_measured_and_brings_nothing() -> None:
    never = measured_terms("lookup", [decode(*[(0, 0)] * 10)])
    assert never.accepted == (0.0,)
    (reason,) = plan(PlacementSnapshot(PLAIN_S, (never,))).reasons
    assert "below the margin" in reason
