"""What of a server's distributions is believed: that they are some, and nothing about how they came about."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.replies import BROKEN, Proposed, read_reply
from engine.errors import SessionError
from engine.types import Draft
from engine.verification.rejection import padded, possible
from tests.unit.engine.distributed.test_sessions import SERVED


def told(*rows: tuple[list[int], list[float]]) -> pb.BlockDraft:
    return pb.BlockDraft(sequence=1, proposals=[pb.Proposal(tokens=ids, probabilities=probs) for ids, probs in rows])


@pytest.mark.parametrize(
    "row",
    [
        ([], []),
        ([1], [0.9]),
        ([1, 2], [1.0]),
        ([1, 1], [0.5, 0.5]),
        ([1, 10], [0.5, 0.5]),
        ([1, 2], [1.5, -0.5]),
        ([1, 2], [1.0, 0.0]),
        ([1, 2], [float("nan"), 1.0]),
        ([1, 2], [float("inf"), 1.0]),
        ([1, 2, 3, 4, 5], [0.2] * 5),
    ],
)
def test_what_is_no_distribution_is_no_draft(row: tuple[list[int], list[float]]) -> None:
    sound = ([3, 4], [0.25, 0.75])
    assert read_reply(told(sound, row), 2, 10, 4, 0.1) == Draft(skipped=BROKEN, came_s=0.1)
    assert read_reply(told(sound, sound), 1, 10, 4, 0.1).came_s == 0.1
    assert isinstance(read_reply(told(sound, sound), 1, 10, 4, 0.1), Draft)
    assert read_reply(told(sound), 2, 10, 4, 0.1) == Proposed([((3, 4), (0.25, 0.75))], 0.1)


def test_distributions_that_nobody_asked_for_are_no_draft() -> None:
    assert read_reply(told(([3], [1.0])), 2, 10, 0, 0.1) == Draft(skipped=BROKEN, came_s=0.1)
    assert read_reply(pb.BlockDraft(tokens=[3]), 2, 10, 4, 0.1) == Draft((3,), 1, came_s=0.1)


def test_a_drafter_that_tells_no_distributions_refuses_a_session_that_wants_some() -> None:
    opened = pb.Open(shaping=pb.Shaping(temperature=1.0, top_k=4, top_p=1.0))
    assert SERVED.shaping(pb.Open()) is None
    with pytest.raises(SessionError, match="tells no distributions") as refused:
        SERVED.shaping(opened)
    assert refused.value.status == "FAILED_PRECONDITION"


def test_proposals_of_several_lengths_are_one_table() -> None:
    proposals = [possible((4, 7, 9), (0.5, 0.5, 0.0)), possible((2,), (1.0,))]
    assert proposals == [((4, 7), (0.5, 0.5)), ((2,), (1.0,))]
    assert padded(proposals) == ([[4, 7], [2, 2]], [[0.5, 0.5], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no match", "no match"),
        ("", BROKEN),
        ("\x1b]0;owned\x07\n", "?]0;owned??"),
        ("x" * 5000, "x" * 200),
    ],
)
def test_a_reason_reaches_a_screen_short_and_printable_and_is_never_late(text: str, reason: str) -> None:
    assert read_reply(pb.BlockDraft(skipped=text), 2, 10, 0, 0.1) == Draft(skipped=reason, came_s=0.1)
