"""Leases are decided by clocks that count through sleep, never by a timestamp somebody wrote."""

from __future__ import annotations

import datetime as dt

from bridge.run.lease import LeaseWatch, OwnLease
from bridge.runner.connection.pacing import MeasuredLease, PollPace, PushBudget
from bridge.runner.queue.admission import condition_wait


class HandClock:
    """A clock that a test moves; its two hands are independent."""

    def __init__(self) -> None:
        self.steady = 100.0
        self.wall = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)

    def now(self) -> dt.datetime:
        return self.wall

    def steady_s(self) -> float:
        return self.steady

    def sleep(self, seconds: float) -> None:
        self.steady += seconds


def listed(watch: LeaseWatch, clock: HandClock, oid: str, *, seconds: float = 0.0, times: int = 1) -> None:
    """List the same tip several times over some seconds."""
    for _ in range(times):
        clock.steady += seconds / times
        watch.listed({"r": oid})


def test_an_observer_waits_a_whole_lease_from_what_it_saw_itself():
    clock = HandClock()
    watch = LeaseWatch(clock)
    assert not watch.expired("r", 15.0)
    listed(watch, clock, "a")
    watch.read("r", "a", (1, 0))
    clock.wall += dt.timedelta(days=1)  # a jumping wall clock decides nothing
    listed(watch, clock, "a", seconds=14.9, times=3)
    assert not watch.expired("r", 15.0)
    listed(watch, clock, "b")
    watch.read("r", "b", (2, 0))  # it moved on: the lease begins anew
    listed(watch, clock, "b", seconds=14.9, times=3)
    assert not watch.expired("r", 15.0)
    clock.steady += 0.2
    assert watch.expired("r", 15.0)
    watch.listed({})
    assert not watch.expired("r", 15.0)


def test_a_lease_runs_out_only_when_the_bus_was_listed_a_few_times_meanwhile():
    clock = HandClock()
    watch = LeaseWatch(clock)
    listed(watch, clock, "a")
    listed(watch, clock, "a", seconds=60.0, times=2)
    assert not watch.expired("r", 15.0)
    listed(watch, clock, "a")
    assert watch.expired("r", 15.0)


def test_old_tips_that_are_pushed_again_begin_no_lease_anew():
    clock = HandClock()
    watch = LeaseWatch(clock)
    listed(watch, clock, "a")
    watch.read("r", "a", (3, 7))
    for oid in "bcbcbc":
        listed(watch, clock, oid, seconds=3.0)
        watch.read("r", oid, (3, 5))
    assert watch.expired("r", 15.0)


def test_a_claim_that_was_read_late_counts_from_when_it_was_listed():
    clock = HandClock()
    watch = LeaseWatch(clock)
    listed(watch, clock, "a")
    watch.read("r", "a", (1, 0))
    listed(watch, clock, "b", seconds=10.0)
    listed(watch, clock, "b", seconds=10.0, times=3)
    watch.read("r", "b", (2, 0))
    assert not watch.expired("r", 15.0)
    clock.steady += 5.1
    assert watch.expired("r", 15.0)


def test_the_owner_stops_a_margin_before_anybody_else_could_take_over():
    clock = HandClock()
    lease = OwnLease(clock, 15.0, asked_s=clock.steady)
    clock.steady += 9.9
    assert not lease.lost()
    clock.steady += 0.2
    assert lease.lost()


def test_a_renewal_counts_from_when_it_was_asked():
    clock = HandClock()
    lease = OwnLease(clock, 15.0, asked_s=clock.steady)
    asked_s = clock.steady
    clock.steady += 9.0  # a slow push
    lease.renewed(asked_s, 15.0)
    clock.steady += 1.1
    assert lease.lost()


def test_the_owner_asks_again_well_before_its_own_bound():
    clock = HandClock()
    lease = OwnLease(clock, 600.0, asked_s=clock.steady)
    assert 0 < lease.due_in_s() < 600.0 / 3
    clock.steady += lease.due_in_s()
    assert lease.due_in_s() == 0.0
    assert not lease.lost()


def test_pushes_to_a_hosted_remote_are_spaced_and_failures_stretch_the_space():
    clock = HandClock()
    budget = PushBudget(clock, lease_s=600.0, hosted=True)
    assert budget.wait_s() == 0.0
    budget.spent(ok=True)
    first = budget.wait_s()
    assert first == 15.0
    budget.spent(ok=False)
    assert budget.wait_s() == 2 * first
    budget.spent(ok=True)
    assert budget.wait_s() == first
    local = PushBudget(clock, lease_s=600.0, hosted=False)
    local.spent(ok=True)
    assert 0 < local.wait_s() <= 1.0


def test_polling_slows_down_when_nothing_happens_and_when_nothing_answers():
    clock = HandClock()
    pace = PollPace(clock, hosted=True)
    busy = pace.wait_s(busy=False)
    clock.steady += 3600
    idle = pace.wait_s(busy=False)
    for _ in range(20):
        pace.listed(ok=False)
    broken = pace.wait_s(busy=False)
    assert busy < idle < broken <= 60.0
    pace.listed(ok=True)
    pace.happened()
    assert pace.wait_s(busy=False) == busy


def test_the_owners_hours_may_span_midnight():
    clock = HandClock()
    hour = clock.now().astimezone().hour
    inside = f"hours-{hour:02d}-{(hour + 1) % 24:02d}"
    outside = f"hours-{(hour + 1) % 24:02d}-{hour:02d}"
    assert condition_wait((inside,), clock) is None
    waiting = condition_wait((outside,), clock)
    assert waiting is not None
    assert outside in waiting.reason


def test_a_local_runner_looks_less_often_while_it_measures():
    pace = PollPace(HandClock(), hosted=False)
    assert pace.wait_s(busy=True) > pace.wait_s(busy=False)


def test_a_lease_is_as_long_as_a_dozen_slow_pushes_within_its_bounds():
    lease = MeasuredLease(600.0)
    assert lease.seconds == 60.0
    lease.pushed(0.1)
    assert lease.seconds == 60.0
    lease.pushed(20.0)
    assert lease.seconds == 240.0  # at once
    for _ in range(30):
        lease.pushed(0.1)
    assert 60.0 < lease.seconds < 240.0  # slowly
    lease.pushed(1000.0)
    assert lease.seconds == 600.0
    assert MeasuredLease(15.0).seconds == 15.0


def test_a_near_bus_that_answers_slowly_is_asked_less_often():
    pace = PollPace(HandClock(), hosted=False)
    quick_s = pace.wait_s(busy=False)
    pace.listed(ok=True, took_s=2.0)
    assert pace.wait_s(busy=False) == 8.0 > quick_s
