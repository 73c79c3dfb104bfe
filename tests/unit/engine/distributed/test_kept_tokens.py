"""What sessions keep to their end is bounded over all of them, and whoever ends makes room; no sockets."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.compatibility import DrafterOffer
from engine.distributed.history import ObservedRows
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.session import MOST_BLOCK_TOKENS, DraftSession, Served
from engine.distributed.sessions import MOST_KEPT_TOGETHER, SessionTable
from engine.errors import SessionError
from engine.types import DrafterInfo
from tests.unit.engine.distributed.test_sessions import FLOAT32, Counting

KEEPING = DrafterOffer(DrafterInfo("ngram", None, "ngram", 0, None), (), None, 0, 0, "", 30.0)


def opened(table: SessionTable) -> DraftSession:
    return table.open(pb.Open(compatibility=KEEPING.compatibility("float32"), row_format=FLOAT32))


def show(session: DraftSession, start: int, count: int) -> None:
    block = pb.Block(session=session.identity, sequence=start + 1)
    block.segments.add(start=start, tokens=[7] * count)
    session.begin(block)


def test_tokens_that_sessions_keep_are_bounded_over_all_of_them() -> None:
    table = SessionTable(Served(KEEPING, Counting), lambda: 0.0)
    sessions = [opened(table) for _ in range(MOST_KEPT_TOGETHER // MOST_BLOCK_TOKENS)]
    for session in sessions:
        show(session, 0, MOST_BLOCK_TOKENS)
    late = opened(table)
    with pytest.raises(SessionError, match="tokens that are kept beside 1048576 in all sessions") as refused:
        show(late, 0, 1)
    assert refused.value.status == "RESOURCE_EXHAUSTED"
    del session
    table.close(sessions.pop())
    show(late, 1, MOST_BLOCK_TOKENS)


def test_a_text_that_comes_token_by_token_takes_room_for_what_it_is() -> None:
    table = SessionTable(Served(KEEPING, Counting), lambda: 0.0)
    session = opened(table)
    for position in range(5000):
        show(session, position, 1)
    assert table._kept.taken == 8192


def test_rows_that_another_drafter_of_the_sequence_reads_are_not_kept_beside_tokens() -> None:
    history = ObservedRows(context_tokens=None, pack=None)
    history.add(0, (5, 6), object())
    history.add(2, (7,), object())
    assert [observed.features for observed in history.since(0, 3)] == [None, None]
