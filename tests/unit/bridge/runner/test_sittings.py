"""A sitting waits until its time, without a slot, and the time is still known after a restart."""

from __future__ import annotations

import datetime as dt

from bridge.records.request import SweepPlace
from bridge.runner.state.sittings import SittingTimes
from tests.fakes.requester import StepClock

SET = "0" * 25 + "7"
POLICY = 'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\nslots = 2\n'


def test_a_set_waits_from_its_last_beginning_on_and_another_does_not(world):
    times = SittingTimes(world().process.state.database, 600.0)
    now = dt.datetime(2026, 3, 1, 14, 0, tzinfo=dt.UTC)
    times.begin(SET, now)
    times.begin(SET, now + dt.timedelta(minutes=11))
    assert times.not_before(SET) == now + dt.timedelta(minutes=21)
    assert times.not_before("0" * 26) is None


def test_the_next_sitting_says_when_it_is_and_others_go_on_meanwhile(world):
    clock = StepClock()
    w = world(policy_text=POLICY)
    w.clock = clock
    w.process = w.new_process("stepped")
    requests = [
        w.ask(profile="standing", sweep=SweepPlace(id=SET, repeat=number, count=6, cells=1)) for number in range(2)
    ]
    sitting = sorted(requests, key=lambda request: request.id)  # both of one moment: the queue goes by their ids
    runner = w.serve_once()
    other = w.ask()
    w.serve_once(runner)
    w.serve_once(runner)  # the other one is over, and its slot free
    at = (clock.now() + dt.timedelta(minutes=10)).astimezone()
    waiting = {request.id: request.why for request in runner._queue.waiting}
    assert waiting == {sitting[1].id: f"next sitting {at:%H:%M}"}
    assert w.claim(other.id).state == "terminal"
    w.process.state.close()
    again = w.runner(w.new_process("stepped"))
    w.serve_once(again)
    assert w.requester.read_claim(sitting[1].id) is None
    clock.at += dt.timedelta(minutes=10)
    w.serve_once(again)
    assert w.claim(sitting[1].id).state == "terminal"
