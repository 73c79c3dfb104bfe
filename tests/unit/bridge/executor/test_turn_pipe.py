"""The supervisor's side of the turn pipe: an answer is one to the order before it."""

from __future__ import annotations

import json
import os

import pytest

from bridge.executor.turns.pipe import TurnPipe, TurnPipeError


@pytest.fixture
def ends():
    """Return the pipe, what reads its orders, and what writes its answers."""
    orders_read, orders_write = os.pipe()
    answers_read, answers_write = os.pipe()
    os.set_blocking(answers_read, False)
    yield TurnPipe(orders_write, answers_read, lambda: True), orders_read, answers_write
    for descriptor in (orders_read, orders_write, answers_read):
        os.close(descriptor)


def done(turn):
    return json.dumps({"event": "done", "turn": turn, "tokens": 8}).encode() + b"\n"


def test_an_order_is_answered_after_it(ends):
    pipe, orders, answers = ends
    go_s = pipe.order(event="go", turn=1)
    assert json.loads(os.read(orders, 4096)) == {"event": "go", "turn": 1}
    os.write(answers, done(1))
    answer, done_s = pipe.answer("done")
    assert answer["turn"] == 1
    assert go_s <= done_s
    os.close(answers)


def test_a_program_that_answers_the_next_turn_before_it_begins_is_cut(ends):
    """Turn numbers count up, so it may know the next one; what is there before the order would take no time."""
    pipe, _, answers = ends
    pipe.order(event="go", turn=1)
    os.write(answers, done(1))
    pipe.answer("done")
    os.write(answers, done(2))
    with pytest.raises(TurnPipeError, match="answered what nobody asked"):
        pipe.order(event="go", turn=2)
    os.close(answers)


def test_two_answers_at_once_are_one_too_many(ends):
    pipe, _, answers = ends
    pipe.order(event="go", turn=1)
    os.write(answers, done(1) + done(2))
    with pytest.raises(TurnPipeError, match="answered what nobody asked"):
        pipe.answer("done")
    os.close(answers)


def test_a_program_that_ended_is_heard_where_its_answer_is_waited_for(ends):
    pipe, _, answers = ends
    os.close(answers)
    pipe.order(event="go", turn=1)
    with pytest.raises(TurnPipeError, match="ended before its last turn"):
        pipe.answer("done")
