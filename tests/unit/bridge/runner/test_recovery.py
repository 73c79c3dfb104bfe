"""What becomes of a run after a crash is a table: every stage of the journal meets everything the bus may show."""

from __future__ import annotations

from itertools import pairwise, product
from typing import get_args

import pytest

from bridge.bus.tree import Tree
from bridge.run.state import FOLLOWING
from bridge.runner.connection.link import link_to
from bridge.runner.run.delivery import ResultDelivery
from bridge.runner.service.recovery import ACTIONS, UNREACHABLE, Action, OnBus, Recovery
from bridge.runner.state.history import Event, JournalLine, JournalStage, after
from bridge.runner.state.journal import read_lines
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus

PAIRS = list(product(JournalStage, OnBus))
WRITTEN = ("claimed", "started", "exited", "result_built", "terminal", "copied")


def test_every_pair_has_one_action_and_every_action_a_pair():
    assert set(ACTIONS) == set(PAIRS)
    assert set(ACTIONS.values()) == set(Action)


def test_unreachable_pairs_are_pairs_with_a_reason_and_run_nothing():
    assert set(UNREACHABLE) < set(PAIRS)
    assert all(UNREACHABLE.values())
    assert {ACTIONS[pair] for pair in UNREACHABLE} == {Action.FINALISE, Action.FORGET}


def test_only_what_never_started_runs_and_nothing_that_is_published_runs_or_is_lost():
    assert {pair for pair, action in ACTIONS.items() if action is Action.RUN} == {
        (JournalStage.QUEUED, OnBus.CLAIMED),
        (JournalStage.CLAIMED, OnBus.CLAIMED),
    }
    assert not [pair for pair, action in ACTIONS.items() if action is Action.FINALISE and pair[0] >= JournalStage.BUILT]


def test_stages_follow_each_other_as_the_states_of_a_run_do():
    for one, next_one in pairwise(JournalStage):
        assert one.state == next_one.state or next_one.state in FOLLOWING[one.state]


def line(event, oid="a" * 40, **detail):
    return JournalLine(
        seq=0, prev_sha256="0" * 64, event=event, id="0" * 26, oid=oid, time="2026-01-02T03:04:05.000Z", detail=detail
    )


def test_no_line_takes_a_run_back_to_an_earlier_stage():
    for first, second in product(get_args(Event), repeat=2):
        one = after(None, line(first, owed="announcement"))
        two = None if one is None else after(one, line(second, owed="announcement"))
        assert two is None or two.stage >= one.stage


class Meeting:
    """A journal that says one thing of a run and a bus that shows another, both written by hand."""

    def __init__(self, w, stage, on_bus):
        self.told, self.w = [], w
        self.bus = MemoryBus(w.remote, clock=w.clock)
        self.ref, self.journal = w.ask(), w.process.journal
        self.result_oid = self.bus.build_result(Tree(FILES), self.ref.id)
        delivery = ResultDelivery(
            "mini", self.journal, link := link_to(self.bus, w.clock),
            clock=w.clock, log=w.process.log, announce=self.told.append,
        )  # fmt: skip
        self.recovery = Recovery(
            "mini", w.process.state, link, delivery=delivery, executor=w.executor, clock=w.clock, log=w.process.log
        )
        self.write(stage, *self.deleted(on_bus))
        self.show(on_bus)

    def write(self, stage, claimed=None, started=None, ended=None):
        """Write the journal of a run that was announced up to a stage, with the claims that it had."""
        self.journal.append("fetched", self.ref.id, self.ref.oid, nonce=NONCE)
        details = {
            "result_built": {"ref": self.ref.ref, "reason": "passed", "message": None},
            "copied": {"owed": "announcement", "ref": self.ref.ref, "request_oid": self.ref.oid},
        }
        claims = {"claimed": claimed, "started": started, "terminal": ended}
        for event in WRITTEN[: int(stage)]:
            self.journal.append(event, self.ref.id, claims.get(event) or self.result_oid, **details.get(event, {}))
        assert self.journal.of(self.ref.id).stage == stage

    def deleted(self, on_bus):
        """Return the claims of a run from its claim to its end, where the bus is to show that they were deleted."""
        if on_bus not in {OnBus.GONE, OnBus.UNCLAIMED}:
            return ()
        actor = Actor(self.bus, self.w.clock, "mini")
        held = self.bus.claim(actor.record(self.ref, "claimed", 0, nonce=NONCE))
        started = actor.start(self.ref, held)
        ended = actor.publish(self.ref, started, FILES)
        del self.w.remote.refs[f"refs/kakeya/claim/{self.ref.id}"]
        return held.oid, started.oid, ended.oid

    def show(self, on_bus):
        """Bring the bus where the claims of a runner would have brought it."""
        actor = Actor(self.bus, self.w.clock, "other" if on_bus is OnBus.FOREIGN else "mini")
        if on_bus is OnBus.GONE:
            del self.w.remote.refs[self.ref.ref]
        if on_bus in {OnBus.GONE, OnBus.UNCLAIMED}:
            return
        nonce = {} if on_bus is OnBus.FOREIGN else {"nonce": NONCE}
        held = self.bus.claim(actor.record(self.ref, "claimed", 0, **nonce))
        if on_bus in {OnBus.STARTED, OnBus.TERMINAL}:
            held = actor.start(self.ref, held)
        if on_bus is OnBus.TERMINAL:
            actor.publish(self.ref, held, FILES)

    def recovered(self):
        """Recover, and return what was seen to happen, as the words of the table have it."""
        snapshot = self.bus.snapshot()
        before = len(list(read_lines(self.w.process.folder.journal)))
        left = self.recovery.recover({ref.id: ref for ref in snapshot.requests}, snapshot.claims)
        events = [one.event for one in read_lines(self.w.process.folder.journal)][before:]
        moved = self.bus.snapshot().claims != snapshot.claims
        if left:
            assert events == []
            went_on = "run" if left[0].resume else "finalise"
            return f"put back, then {went_on}" if moved else went_on
        return (*events, "moved the claim") if moved else tuple(events)


NONCE = "f" * 32
FILES = {"manifest.json": b"{}", "reports/a.json": b"[1]"}
PUT_BACK_AS = {
    JournalStage.CLAIMED: OnBus.CLAIMED,
    JournalStage.RUNNING: OnBus.STARTED,
    JournalStage.JUDGING: OnBus.STARTED,
    JournalStage.BUILT: OnBus.STARTED,
    JournalStage.PUBLISHED: OnBus.TERMINAL,
}
EFFECTS = {
    Action.FORGET: {("fenced",)},
    Action.LEAVE: {()},
    Action.PUT_BACK: {
        "put back, then run",
        "put back, then finalise",
        ("terminal", "copied", "announced", "moved the claim"),
        ("copied", "announced", "moved the claim"),
    },
    Action.YIELD: {("fenced",)},
    Action.RUN: {"run"},
    Action.FINALISE: {"finalise"},
    Action.DELIVER: {("terminal", "copied", "announced", "moved the claim")},
    Action.COPY: {("copied", "announced"), ("terminal", "copied", "announced")},
    Action.NOTIFY: {("announced",)},
}


@pytest.mark.parametrize(("stage", "on_bus"), PAIRS, ids=[f"{stage.name}-{on_bus.name}" for stage, on_bus in PAIRS])
def test_what_happens_is_what_the_table_says(world, stage, on_bus):
    w = world()
    meeting = Meeting(w, stage, on_bus)
    action = ACTIONS[stage, on_bus]

    assert meeting.recovered() in EFFECTS[action]

    if action is Action.PUT_BACK:
        action = ACTIONS[stage, PUT_BACK_AS[stage]]
    told = action in {Action.DELIVER, Action.COPY, Action.NOTIFY}
    assert [one.ref for one in meeting.told] == ([meeting.ref] if told else [])
    over = action in {Action.FORGET, Action.YIELD, Action.DELIVER, Action.COPY}
    assert meeting.bus.store.kept == ({} if over else {meeting.ref.id: meeting.result_oid})
    if action in {Action.DELIVER, Action.COPY}:
        assert w.claim(meeting.ref.id).result_oid == meeting.result_oid
    too_late = on_bus is OnBus.FOREIGN and JournalStage.JUDGING <= stage < JournalStage.COPIED
    assert any("too late" in line for line in w.said) == too_late


@pytest.mark.parametrize(("stage", "on_bus"), PAIRS, ids=[f"{stage.name}-{on_bus.name}" for stage, on_bus in PAIRS])
def test_recovering_twice_settles_nothing_twice(world, stage, on_bus):
    meeting = Meeting(world(), stage, on_bus)
    first = meeting.recovered()

    again = first.removeprefix("put back, then ") if isinstance(first, str) else ()
    assert meeting.recovered() == again


def test_a_claim_that_keeps_being_deleted_is_put_back_once_a_minute_and_then_less_often(world):
    w = world()
    w.clock = FakeClock()
    meeting = Meeting(w, JournalStage.RUNNING, OnBus.UNCLAIMED)
    ref = f"refs/kakeya/claim/{meeting.ref.id}"
    put_back_s = []
    for second in range(200):
        if meeting.recovered() == "put back, then finalise":
            put_back_s.append(second)
            del w.remote.refs[ref]
        w.clock.advance(1.0)
    assert put_back_s == [0, 60, 180]


def test_a_claim_of_a_run_that_was_archived_is_not_put_back(world):
    w = world()
    meeting = Meeting(w, JournalStage.BUILT, OnBus.UNCLAIMED)
    meeting.bus.is_archived = lambda run_id: True
    assert meeting.recovered() == ("fenced",)


def test_a_run_that_was_only_claimed_is_run_at_the_branch_that_its_request_names(world):
    w = world()
    ref = Meeting(w, JournalStage.CLAIMED, OnBus.CLAIMED).ref
    w.remote.refs[f"refs/heads/mac-bridge/pytest-path-{ref.id}"] = ref.oid
    w.serve_once()
    assert [spec.id for spec in w.executor.executed] == [ref.id]
    assert w.requester.view(ref.id).delivery == "copied"


def test_a_result_is_copied_to_the_branch_that_it_was_built_for(world):
    w = world()
    meeting = Meeting(w, JournalStage.BUILT, OnBus.STARTED)
    another = f"refs/heads/mac-bridge/zzz-{meeting.ref.id}"
    w.remote.refs[another] = meeting.ref.oid
    meeting.recovered()
    assert w.requester.view(meeting.ref.id).delivery == "copied"
    assert w.remote.refs[another] == meeting.ref.oid
