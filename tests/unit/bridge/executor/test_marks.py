from __future__ import annotations

import contextlib
import json
import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from bridge.executor.command.marks import MarkListener, MarkReader
from bridge.limits import SAMPLE_MARKS_MAX_BYTES, SAMPLE_MARKS_MAX_COUNT


def line(**fields) -> bytes:
    return json.dumps(fields).encode() + b"\n"


START = line(event="start", sample="0/0/speculative/p1")


def test_a_mark_gets_the_time_of_its_last_byte():
    reader = MarkReader()
    reader.feed(START[:10], 1.0)
    reader.feed(START[10:] + line(event="end", sample="0/0/speculative/p1", token_digest="a" * 64), 2.5)

    assert [(mark.event, mark.t_s) for mark in reader.marks] == [("start", 2.5), ("end", 2.5)]
    assert reader.marks[1].token_digest == "a" * 64
    assert reader.dropped == 0


@given(st.lists(st.integers(1, 40), max_size=60))
def test_how_lines_are_cut_changes_nothing(sizes):
    text = START + b"junk\n" + b"y" * 2000 + b"\n" + START + b"[1]\n"
    reader = MarkReader()
    for size in sizes:
        reader.feed(text[:size], 0.0)
        text = text[size:]
    reader.feed(text, 0.0)
    reader.end()

    assert (len(reader.marks), reader.dropped) == (2, 3)


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader(text):
    reader = MarkReader()
    reader.feed(text, 0.0)
    reader.end()

    assert reader.marks == []


def test_a_line_longer_than_the_bound_is_dropped_and_the_next_one_is_read():
    reader = MarkReader()
    reader.feed(b'{"event":"start","sample":"' + b"x" * 600 + b'"}\n' + START, 0.0)

    assert (len(reader.marks), reader.dropped) == (1, 1)


def test_marks_beyond_the_count_are_dropped_and_counted():
    reader = MarkReader(max_count=3)
    for _ in range(5):
        reader.feed(START, 0.0)

    assert (len(reader.marks), reader.dropped) == (3, 2)


def test_marks_beyond_their_bytes_are_dropped_and_counted():
    size = len(START[:-1]) + 64
    reader = MarkReader(max_bytes=2 * size + size // 2)
    for _ in range(5):
        reader.feed(START, 123_456.789_012_345_678)

    assert (len(reader.marks), reader.dropped, reader.bytes) == (2, 3, 2 * size)
    assert sum(len(mark.canonical()) + 1 for mark in reader.marks) <= reader.bytes


def test_as_many_of_the_longest_marks_as_there_may_be_leave_a_result_room():
    """A record of fifty megabytes fits into no result: such a run was judged again and again, and never ended."""
    reader = MarkReader()
    reader.feed(line(event="start", sample="x" * 440) * SAMPLE_MARKS_MAX_COUNT, 1.0)

    assert sum(len(mark.canonical()) + 1 for mark in reader.marks) <= SAMPLE_MARKS_MAX_BYTES
    assert len(reader.marks) + reader.dropped == SAMPLE_MARKS_MAX_COUNT


def test_a_line_without_an_end_is_counted_once_it_is_clear_that_none_comes():
    reader = MarkReader()
    reader.feed(START[:-1], 0.0)
    assert reader.dropped == 0
    reader.end()

    assert reader.dropped == 1


def test_fields_of_another_shape_are_dropped():
    reader = MarkReader()
    for fields in (
        {"event": "party", "sample": "a"},
        {"event": "start"},
        {"event": "start", "sample": 7},
        {"event": "start", "sample": "a", "t_s": 0.0},
        {"event": "end", "sample": "a", "token_digest": "A" * 64},
        {"event": "start", "sample": "line\nbreak"},
    ):
        reader.feed(line(**fields), 0.0)

    assert (reader.marks, reader.dropped) == ([], 6)


def test_a_writer_that_never_stops_does_not_keep_the_listener():
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    reader = MarkReader()
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            with contextlib.suppress(BlockingIOError):
                os.write(write_end, b"x" * 4096)

    writer = threading.Thread(target=flood)
    with MarkListener(reader, read_end, lambda: 1.0, lambda: None):
        writer.start()
    stop.set()
    writer.join()
    os.close(read_end)
    os.close(write_end)


def test_the_listener_reads_everything_before_it_ends():
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    reader = MarkReader()
    with MarkListener(reader, read_end, lambda: 3.0, lambda: None):
        os.write(write_end, START * 500)
        os.close(write_end)
    os.close(read_end)

    assert [mark.t_s for mark in reader.marks] == [3.0] * 500
