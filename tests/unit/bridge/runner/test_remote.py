"""A remote that loses, repeats, delays or swallows replies: one execution, one published result."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import pytest

from bridge.errors import InfrastructureError
from bridge.runner.state.journal import read_lines
from bridge.system.clock import SystemClock


class QuickClock(SystemClock):
    """Does not really wait between two tries; its steady time can be pushed forward."""

    ahead_s = 0.0

    def steady_s(self) -> float:
        return super().steady_s() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.01))


@pytest.fixture
def clock():
    return QuickClock()


def settle(w, runner, ref, looks=12):
    """List and act until the run has its end and its copy."""
    for _ in range(looks):
        try:
            runner.step()
        except InfrastructureError:
            continue
        runner.join()
        if w.process.journal.of(ref.id) is None and w.requester.read_claim(ref.id) is not None:
            return
    raise AssertionError(f"not settled: {w.log_lines}")


@pytest.mark.parametrize("fate", ["lost", "unanswered", "repeated"])
@pytest.mark.parametrize("nth", range(6))
def test_any_one_push_may_fail(world, fate, nth):
    w = world()
    ref = w.ask()
    runner = w.runner()
    pushes = itertools.count()
    w.faults.decide = lambda operation: fate if operation == "push" and next(pushes) == nth else None
    settle(w, runner, ref)
    assert len(w.executor.executed) == 1
    w.result(ref.id)


@pytest.mark.parametrize("nth", range(6))
def test_a_push_that_arrives_late_is_not_a_second_run(world, nth):
    w = world()
    ref = w.ask()
    runner = w.runner()
    pushes = itertools.count()

    def decide(operation):
        if operation != "push":
            return None
        number = next(pushes)
        if number == nth + 2:
            w.faults.flush()
        return "delayed" if number == nth else None

    w.faults.decide = decide
    settle(w, runner, ref)
    w.faults.flush()
    assert len(w.executor.executed) == 1
    assert w.claim(ref.id).state == "terminal"
    w.result(ref.id)


def spooled(w, lost=("list", "fetch", "push")):
    """Serve a run whose bus is lost while its program ends; return its ref, the runner, and the event that says so.

    Args:
        lost: which operations get no answer then.
    """
    down = threading.Event()

    def goes_down(spec, directory):
        yield b"x\n"
        down.set()
        return 1

    w.program = goes_down
    w.faults.decide = lambda operation: "lost" if down.is_set() and operation in lost else None
    ref = w.ask()
    return ref, w.serve_once(), down


def test_a_result_that_cannot_be_published_stays_in_the_spool_until_it_can(world):
    w = world()
    ref, runner, down = spooled(w)
    assert runner.outcomes[0].delivery == "spooled"
    assert runner.outcomes[0].exit_code == 3
    built = [line.oid for line in read_lines(w.process.folder.database) if line.event == "result_built"]
    down.clear()
    settle(w, runner, ref)
    assert w.claim(ref.id).reason == "program_failed"
    assert [w.claim(ref.id).result_oid] == built
    assert len(w.executor.executed) == 1
    w.result(ref.id)


def test_a_result_in_the_spool_is_not_replaced_by_its_own_runner_when_its_lease_runs_out(world, clock):
    w = world()
    ref, runner, down = spooled(w, lost=["push"])
    assert runner.outcomes[0].delivery == "spooled"
    (built,) = [line.oid for line in read_lines(w.process.folder.database) if line.event == "result_built"]
    for clock.ahead_s in (5.0, 10.0, 15.0, 20.0, 25.0, 30.0):  # the runner's own beacon is refused as well
        runner.step()
        runner.join()
    down.clear()
    clock.ahead_s = 700.0
    settle(w, runner, ref)
    assert (w.claim(ref.id).reason, w.claim(ref.id).result_oid) == ("program_failed", built)
    w.result(ref.id)


def test_a_result_that_came_late_is_told_of_once_and_only_when_it_is_there(world):
    w = world()
    announced = []
    w.process = dataclasses.replace(w.process, announce=announced.append)
    ref, runner, down = spooled(w)
    assert (runner.outcomes[0].delivery, announced) == ("spooled", [])
    down.clear()
    settle(w, runner, ref)
    runner.step()
    (ended,) = announced
    assert (ended.ref, ended.ending.reason) == (ref, "program_failed")
    assert ended.request == w.request_of(ref)
    assert ended.files == w.result(ref.id).files


def test_a_result_whose_copy_came_late_is_told_of_once(world):
    w = world()
    announced = []
    w.process = dataclasses.replace(w.process, announce=announced.append)
    ref = w.ask()
    copied = threading.Event()

    def decide(operation):
        ended = (view := w.requester.read_claim(ref.id)) is not None and view.claim.state == "terminal"
        return "lost" if operation == "push" and ended and not copied.is_set() else None

    w.faults.decide = decide
    runner = w.serve_once()
    assert (runner.outcomes[0].delivery, announced) == ("spooled", [])
    copied.set()
    settle(w, runner, ref)
    runner.step()
    assert [ended.ref for ended in announced] == [ref]


def test_a_result_in_the_spool_survives_a_restart(world):
    w = world()
    ref, runner, down = spooled(w)
    down.clear()
    w.process = w.new_process()
    again = w.runner(w.process)
    again._link.bus.store.objects.update(runner._link.bus.store.objects)  # the repository on disk is the same
    settle(w, again, ref)
    assert w.claim(ref.id).reason == "program_failed"
    assert len(w.executor.executed) == 1


def test_a_remote_that_is_down_while_listing_stops_nothing_that_runs(world):
    w = world()
    w.faults.decide = lambda operation: "lost" if operation == "list" else None
    with pytest.raises(InfrastructureError):
        w.runner().step()
