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
    for stage, next_stage in pairwise(JournalStage):
        assert stage.state == next_stage.state or next_stage.state in FOLLOWING[stage.state]


def line(event, oid="a" * 40, **detail):
    return JournalLine(
        seq=0, prev_sha256="0" * 64, event=event, id="0" * 26, oid=oid, time="2026-01-02T03:04:05.000Z", detail=detail
    )


def test_no_line_takes_a_run_back_to_an_earlier_stage():
    for first, second in product(get_args(Event), repeat=2):
        history = after(None, line(first, owed="announcement"))
        later = None if history is None else after(history, line(second, owed="announcement"))
        assert later is None or later.stage >= history.stage


class Meeting:
    """A journal that says one thing of a run and a bus that shows another, both written by hand."""

    def __init__(self, w, stage, on_bus):
        self.announced, self.w = [], w
        self.bus = MemoryBus(w.remote, clock=w.clock)
        self.ref, self.journal = w.ask(), w.process.journal
        self.result_oid = self.bus.build_result(Tree(FILES), self.ref.id)
        delivery = ResultDelivery(
            "mini", self.journal, link := link_to(self.bus, w.clock),
            clock=w.clock, log=w.process.log, announce=self.announced.append,
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
        claimed = self.bus.claim(actor.record(self.ref, "claimed", 0, nonce=NONCE))
        started = actor.start(self.ref, claimed)
        ended = actor.publish(self.ref, started, FILES)
        del self.w.remote.refs[f"refs/kakeya/claim/{self.ref.id}"]
        return claimed.oid, started.oid, ended.oid

    def show(self, on_bus):
        """Bring the bus where the claims of a runner would have brought it."""
        actor = Actor(self.bus, self.w.clock, "other" if on_bus is OnBus.FOREIGN else "mini")
        if on_bus is OnBus.GONE:
            del self.w.remote.refs[self.ref.ref]
        if on_bus in {OnBus.GONE, OnBus.UNCLAIMED}:
            return
        nonce = {} if on_bus is OnBus.FOREIGN else {"nonce": NONCE}
        claim = self.bus.claim(actor.record(self.ref, "claimed", 0, **nonce))
        if on_bus in {OnBus.STARTED, OnBus.TERMINAL}:
            claim = actor.start(self.ref, claim)
        if on_bus is OnBus.TERMINAL:
            actor.publish(self.ref, claim, FILES)

    def recovered(self):
        """Recover, and return what was seen to happen, as the words of the table have it."""
        snapshot = self.bus.snapshot()
        before = len(list(read_lines(self.w.process.folder.database)))
        left = self.recovery.recover({ref.id: ref for ref in snapshot.requests}, snapshot.claims)
        events = [entry.event for entry in read_lines(self.w.process.folder.database)][before:]
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
    notified = action in {Action.DELIVER, Action.COPY, Action.NOTIFY}
    assert [announcement.ref for announcement in meeting.announced] == ([meeting.ref] if notified else [])
    over = action in {Action.FORGET, Action.YIELD, Action.DELIVER, Action.COPY}
    assert meeting.bus.store.pins == ({} if over else {meeting.ref.id: meeting.result_oid})
    if action in {Action.DELIVER, Action.COPY}:
        assert w.claim(meeting.ref.id).result_oid == meeting.result_oid
    too_late = on_bus is OnBus.FOREIGN and JournalStage.JUDGING <= stage < JournalStage.COPIED
    assert any("too late" in line for line in w.log_lines) == too_late


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
