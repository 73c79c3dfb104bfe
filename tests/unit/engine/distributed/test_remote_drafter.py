"""What a remote drafter sends, seen at its end of the stream; no sockets."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.remote_drafter import RemoteModel
from tests.unit.engine.distributed.test_sessions import OFFER, WIDTH


class Recorded:
    """A stream that keeps what it is to send; what comes is told by the test."""

    def __init__(self, listener) -> None:
        self.listener, self.sent = listener, []

    def send(self, message) -> None:
        self.sent.append(message)

    def close(self, message) -> None:
        del message


def test_a_session_that_opens_late_is_shown_what_its_ask_is_behind_and_no_more():
    streams = []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    drafter = RemoteModel(OFFER, 1000, connect, "float32", lambda rows: b"\1" * (4 * WIDTH * len(rows))).open()
    drafter.observe(0, (5, 6, 7), [0, 0, 0])
    assert drafter.ask(8, 3, 2).take(0.0).skipped == "late"
    drafter.observe(3, (8, 9), [0, 0])
    (stream,) = streams
    stream.listener.heard(pb.Opened(session="s", context_length=0))
    (block,) = (each for each in stream.sent if isinstance(each, pb.Block))
    assert [(segment.start, tuple(segment.tokens)) for segment in block.segments] == [(0, (5, 6, 7))]
    assert (block.ask.context_length, block.rows.rows, block.rows.total_bytes) == (3, 3, 3 * 4 * WIDTH)
