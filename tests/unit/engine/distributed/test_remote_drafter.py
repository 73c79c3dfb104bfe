"""What a remote drafter sends, seen at its end of the stream; no sockets."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.remote_drafter import RemoteModel
from engine.types import Draft
from tests.unit.engine.distributed.test_sessions import OFFER, WIDTH


class Recorded:
    """A stream that keeps what it is to send; what comes is told by the test."""

    def __init__(self, listener) -> None:
        self.listener, self.sent = listener, []

    def send(self, message) -> None:
        self.sent.append(message)

    def close(self, message) -> None:
        del message


def packed(features: list[list[int]]) -> bytes:
    """Return rows whose every byte is the number that stands for them."""
    return b"".join(bytes([number]) * (4 * WIDTH) for rows in features for number in rows)


def test_a_session_that_opens_late_is_shown_what_its_ask_is_behind_and_no_more():
    streams = []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    drafter = RemoteModel(OFFER, 1000, connect, "float32", packed).open()
    drafter.observe(0, (5, 6, 7), [0, 0, 0])
    assert drafter.ask(8, 3, 2).under_way
    drafter.observe(3, (8, 9), [0, 0])
    (stream,) = streams
    stream.listener.heard(pb.Opened(session="s", context_length=0))
    (block,) = (each for each in stream.sent if isinstance(each, pb.Block))
    assert [(segment.start, tuple(segment.tokens)) for segment in block.segments] == [(0, (5, 6, 7))]
    assert (block.ask.context_length, block.rows.rows, block.rows.total_bytes) == (3, 3, 3 * 4 * WIDTH)


def test_the_bytes_held_are_those_of_every_row_observed_whenever_the_last_ask_was():
    def held(asked_after: int) -> int:
        """Return the bytes after ten rows, an ask having come after so many of them."""
        drafter = RemoteModel(OFFER, 1000, Recorded, "float32", packed).open()
        for position in range(10):
            if position == asked_after:
                drafter.ask(8, position, 2)
            drafter.observe(position, (7,), [0])
        return drafter.measured_bytes()

    assert [held(asked_after) for asked_after in (2, 9, 10)] == 3 * [10 * 4 * WIDTH]


def test_rows_are_read_from_the_device_together_and_not_before_an_ask_takes_them_along():
    reads, streams = [], []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    def pack(features):
        reads.append(len(features))
        return packed(features)

    drafter = RemoteModel(OFFER, 1000, connect, "float32", pack).open()
    (stream,) = streams
    stream.listener.heard(pb.Opened(session="s", context_length=0))
    drafter.observe(0, (5, 6, 7), [1, 2, 3])
    for position in range(3, 60):
        drafter.observe(position, (8,), [position])
    assert reads == []  # each read waits for the forward that is under way
    drafter.ask(8, 60, 2)
    assert reads == [58]
    (block,) = (each for each in stream.sent if isinstance(each, pb.Block))
    assert block.rows.data == packed([[1, 2, 3, *range(3, 60)]])


def test_a_server_is_given_up_when_it_was_silent_for_so_long_since_the_ask():
    now_s, waited = [100.0], []

    def wait_for(_predicate, timeout_s):
        waited.append(timeout_s)
        now_s[0] += timeout_s
        return False

    model = RemoteModel(OFFER, 1000, Recorded, "float32", lambda rows: b"", 5.0, lambda: now_s[0])
    drafter = model.open()
    drafter._changed.wait_for = wait_for
    assert drafter.ask(8, 0, 2, 0.5) == Draft(under_way=True, came_s=0.5)
    now_s[0] += 3.0  # the target was busy meanwhile
    assert drafter.ready(8).came_s == 3.5
    assert drafter.ask(8, 0, 2, None).skipped == "the remote drafter was silent"
    assert waited == [0.5, 1.5]
    assert now_s == [105.0]


def uploading(now_s):
    """Return a drafter with five seconds' patience that asked just now, sending three messages, and its stream."""
    streams = []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    model = RemoteModel(OFFER, 1000, connect, "float32", lambda rows: bytes(3 << 20), 5.0, lambda: now_s[0])
    drafter = model.open()
    (stream,) = streams
    stream.listener.left()
    stream.listener.heard(pb.Opened(session="s", context_length=0))
    drafter.observe(0, (5, 6, 7), [0, 0, 0])
    assert drafter.ask(8, 3, 2).under_way
    assert len(stream.sent) == 1 + 3
    return drafter, stream


def test_a_server_is_not_given_up_while_an_ask_still_leaves_over_a_slow_link():
    now_s = [100.0]
    drafter, stream = uploading(now_s)
    for _ in range(3):
        now_s[0] += 4.0
        assert drafter.ready(8).under_way
        stream.listener.left()
    now_s[0] += 4.0
    assert drafter.ready(8).under_way
    now_s[0] += 1.1
    assert drafter.ready(8).skipped == "the remote drafter was silent"


def test_later_asks_that_leave_keep_no_server_that_is_silent_with_an_earlier_ask():
    now_s = [100.0]
    drafter, stream = uploading(now_s)
    for _ in range(3):
        stream.listener.left()
    for position in (3, 4):
        now_s[0] += 2.0
        drafter.observe(position, (8,), [0])
        assert drafter.ask(8, position + 1, 2).under_way
        stream.listener.left()
    now_s[0] += 1.1
    assert drafter.ready(8).skipped == "the remote drafter was silent"


def test_a_wait_without_a_bound_goes_on_while_the_ask_leaves():
    now_s, waited = [100.0], []
    drafter, stream = uploading(now_s)

    def wait_for(_predicate, timeout_s):
        waited.append(timeout_s)
        if len(waited) <= 3:
            now_s[0] += timeout_s
            stream.listener.left()
        elif len(waited) == 4:
            now_s[0] += 2.0
            stream.listener.heard(pb.BlockDraft(sequence=blocks(stream)[-1].sequence, tokens=[9, 10]))
            return True
        return False

    drafter._changed.wait_for = wait_for
    assert drafter.ask(8, 3, 2, None).tokens == (9, 10)
    assert waited == 4 * [5.0]


def test_a_fault_is_waited_for_once_and_drafts_come_again_when_another_session_is_open():
    now_s, waited, streams = [100.0], [], []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    def wait_for(_predicate, timeout_s):
        waited.append(timeout_s)
        now_s[0] += timeout_s
        return False

    drafter = RemoteModel(OFFER, 1000, connect, "float32", lambda rows: b"", 5.0, lambda: now_s[0]).open()
    drafter._changed.wait_for = wait_for
    assert drafter.ask(8, 0, 2, None).skipped == "the remote drafter was silent"
    for _ in range(100):  # nobody answers: what connects in the meantime is not waited for, and is given up in turn
        now_s[0] += 1.0
        assert drafter.ask(8, 0, 2, None).skipped == "the remote drafter was silent"
    assert waited == [5.0]
    assert len(streams) > 5
    while not any(isinstance(each, pb.Block) for each in streams[-1].sent):
        now_s[0] += 1.0
        streams[-1].listener.heard(pb.Opened(session="s", context_length=0))
        drafter.ask(8, 0, 2)
    (block,) = (each for each in streams[-1].sent if isinstance(each, pb.Block))
    streams[-1].listener.heard(pb.BlockDraft(sequence=block.sequence, tokens=[9, 10]))
    assert drafter.ready(8).tokens == (9, 10)
    assert waited == [5.0]


def opened_drafter():
    """Return a drafter that asked behind three positions on a stream of its own, and all its streams."""
    streams = []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    drafter = RemoteModel(OFFER, 1000, connect, "float32", packed).open()
    drafter.observe(0, (5, 6, 7), [0, 0, 0])
    drafter.ask(8, 3, 2)
    return drafter, streams


def blocks(stream) -> list[pb.Block]:
    return [each for each in stream.sent if isinstance(each, pb.Block)]


@pytest.mark.parametrize(
    "opened",
    [
        [pb.Opened(session="s", context_length=7)],
        [pb.Opened(session="", context_length=0)],
        [pb.Opened(session="s" * (1 << 20))],
        [pb.Opened(session=f"s{number}") for number in range(20)],
        [pb.BlockDraft(sequence=1, tokens=[9])],
    ],
    ids=[
        "knows what nobody showed it",
        "without a name",
        "with a name of a megabyte",
        "opens twenty times",
        "answers before it opened",
    ],
)
def test_a_server_that_says_what_no_server_says_is_given_up_for_a_pause(opened):
    drafter, (stream, *_) = opened_drafter()
    for reply in opened:
        stream.listener.heard(reply)
    assert drafter.ready(8).skipped == "the remote drafter said more than it was asked"
    assert len(blocks(stream)) <= 1, "what it was shown once is not shown again"
    assert drafter.ask(8, 3, 2).skipped == "the remote drafter said more than it was asked"
    assert drafter.traffic.sessions == 1, "another is opened after the pause only"


def test_a_server_that_answers_an_ask_twice_is_heard_once():
    drafter, (stream, *_) = opened_drafter()
    stream.listener.heard(pb.Opened(session="s"))
    number = blocks(stream)[0].sequence
    for tokens in ([9, 10], [11, 12], [13, 14]):
        stream.listener.heard(pb.BlockDraft(sequence=number, tokens=tokens))
    assert drafter.ready(8).tokens == (9, 10)
    assert drafter.traffic.received["blockdraft"] > 0
    assert drafter.ask(8, 3, 2).skipped == "the remote drafter said more than it was asked"


def test_forwards_only_grow_when_a_session_begins_anew_or_is_gone_on_with():
    now_s, streams, counted = [100.0], [], []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    drafter = RemoteModel(OFFER, 1000, connect, "float32", packed, now_s=lambda: now_s[0]).open()
    drafter.observe(0, (5, 6, 7), [0, 0, 0])
    for session, length, forwards in (("s", 0, 7), ("s", 3, 9), ("t", 0, 1), ("u", 0, 0)):
        drafter.ask(8, 3, 2)  # opens another where the last is gone
        streams[-1].listener.heard(pb.Opened(session=session, context_length=length))
        drafter.ask(8, 3, 2)
        number = blocks(streams[-1])[-1].sequence
        streams[-1].listener.heard(pb.BlockDraft(sequence=number, tokens=[9], forwards=forwards))
        counted.append(drafter.forwards)
        streams[-1].listener.ended("UNAVAILABLE" if session == "s" else "NOT_FOUND", "gone")
        now_s[0] += 60.0
    assert counted == [7, 9, 10, 10]


def test_a_session_that_was_not_asked_until_rows_were_gone_is_replaced_before_it_refuses():
    drafter, streams = opened_drafter()
    streams[0].listener.heard(pb.Opened(session="s"))
    streams[0].listener.heard(pb.BlockDraft(sequence=blocks(streams[0])[0].sequence, tokens=[9]))
    for position in range(3, 3 + 2 * OFFER.context_tokens):
        drafter.observe(position, (8,), [0])
    end = 3 + 2 * OFFER.context_tokens
    drafter.ask(9, end, 2)
    assert (len(streams), len(blocks(streams[0]))) == (2, 1)
    streams[1].listener.heard(pb.Opened(session="t"))
    (block,) = blocks(streams[1])
    assert (block.segments[0].start, block.ask.context_length) == (end - OFFER.context_tokens, end)
    streams[1].listener.heard(pb.BlockDraft(sequence=block.sequence, tokens=[9, 10]))
    assert drafter.ready(9).tokens == (9, 10)


def test_a_session_that_opens_when_all_it_was_to_be_shown_is_gone_is_replaced_before_it_refuses():
    drafter, streams = opened_drafter()
    end = 3 + 2 * OFFER.context_tokens
    for position in range(3, end):
        drafter.observe(position, (8,), [0])
    streams[0].listener.heard(pb.Opened(session="s"))
    (block,) = blocks(streams[0])
    assert (len(block.segments), block.ask.context_length) == (0, 3)
    drafter.ask(9, end, 2)
    assert (len(streams), len(blocks(streams[0]))) == (2, 1)
    streams[1].listener.heard(pb.Opened(session="t"))
    (block,) = blocks(streams[1])
    assert (block.segments[0].start, block.ask.context_length) == (end - OFFER.context_tokens, end)


def test_a_server_with_other_weights_is_asked_again_and_drafts_once_it_has_these():
    now_s, streams = [100.0], []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    drafter = RemoteModel(OFFER, 1000, connect, "float32", packed, now_s=lambda: now_s[0]).open()
    drafter.observe(0, (5, 6, 7), [0, 0, 0])
    for _ in range(3):
        streams[-1].listener.ended("FAILED_PRECONDITION", "other weights")
        assert drafter.ask(8, 3, 2).skipped == "the remote drafter was refused: other weights"
        now_s[0] += 60.0
        drafter.ask(8, 3, 2)  # opens another
    assert len(streams) == 4
    streams[-1].listener.heard(pb.Opened(session="s"))
    drafter.ask(8, 3, 2)
    streams[-1].listener.heard(pb.BlockDraft(sequence=blocks(streams[-1])[-1].sequence, tokens=[9, 10]))
    assert drafter.ready(8).tokens == (9, 10)


def test_a_draft_beside_plain_decoding_may_take_twice_the_slowest_of_late_and_one_that_is_waited_for_the_patience():
    now_s, streams = [100.0], []

    def connect(listener):
        streams.append(Recorded(listener))
        return streams[-1]

    drafter = RemoteModel(OFFER, 1000, connect, "float32", packed, 5.0, lambda: now_s[0]).open()
    streams[-1].listener.heard(pb.Opened(session="s", context_length=0))

    def answer(after_s):
        assert drafter.ask(8, 0, 2).under_way
        now_s[0] += after_s
        block = next(each for each in reversed(streams[-1].sent) if isinstance(each, pb.Block))
        streams[-1].listener.heard(pb.BlockDraft(sequence=block.sequence, tokens=(1, 2)))
        assert drafter.ready(8).came

    answer(0.4)
    assert drafter.ask(8, 0, 2).under_way
    now_s[0] += 0.79
    assert drafter.ready(8).under_way
    now_s[0] += 0.02
    assert drafter.ready(8).skipped == "the remote drafter was silent"
    now_s[0] += 1.0
    drafter.ask(8, 0, 2)
    streams[-1].listener.heard(pb.Opened(session="t", context_length=0))
    assert drafter.ask(8, 0, 2).under_way
    waited = []
    drafter._changed.wait_for = lambda _, timeout_s: waited.append(timeout_s)
    assert drafter.ask(8, 0, 2, None).skipped == "the remote drafter was silent"
    assert waited == [5.0]
