"""Runs whose engine is slow to answer, or does not: they end when they are told to, and none is run twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError, LeftRunningError
from bridge.executor.engines.submitted import load_submitted, save_submitted
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import Execution
from tests.fakes.local_engine import LocalEngine
from tests.support.placed_queue import CLOCK, FOREVER, PlacedQueue
from tests.support.waiting import until

SOON_S, ENGINE_S = 30.0, 120.0  # without waiting for the engine, on a machine that is busy


class SlowQueue(PlacedQueue):
    """One over the fake engine, which answers once `answers` is set."""

    engine: LocalEngine
    answers: threading.Event

    def slow(self, ask: str | None) -> None:
        """Ask for the run's end as soon as the engine is asked something, and keep it from answering."""
        self.answers = threading.Event()

        def before() -> None:
            self.ask = ask
            self.answers.wait(ENGINE_S)

        self.engine.before = before


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[SlowQueue]:
    made = SlowQueue(tmp_path, LocalEngine())
    made.answers = threading.Event()
    yield made
    made.answers.set()
    made.engine.end_all()


@pytest.mark.parametrize(("ending", "slots"), [("cancelled", 0), ("interrupted", 1)])
def test_what_is_told_to_end_while_it_is_submitted_ends_at_once_and_never_begins(
    queue: SlowQueue, ending: str, slots: int
) -> None:
    queue.slow(ending)
    queue.engine.slots = slots
    began_s = CLOCK.steady_s()
    came_to = queue.go().wait()
    assert CLOCK.steady_s() - began_s < SOON_S
    assert (came_to.ending, came_to.commands) == (ending, ())
    assert "ended while it was being handed to slurm" in str(came_to.message)
    queue.answers.set()  # it takes the job after all: gives its place back, or is refused by the folder
    word = "FAILED" if slots else "CANCELLED"
    until(lambda: (job := queue.engine.look("1")) is not None and job.word == word, why="its job is still there")
    assert (RunFolder(queue.handle).facts(), RunFolder(queue.handle).kept()) == (None, None)


def test_a_runner_that_was_killed_after_it_withdrew_a_run_does_not_run_it(queue: SlowQueue) -> None:
    queue.slow("cancelled")
    queue.go()
    queue.ask, queue.engine.away = None, True  # another process, whom nobody asks anything; it needs no engine
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert run is not None
    assert not isinstance(run, Execution)
    assert run.wait().ending == "cancelled"


def test_a_run_that_no_engine_took_is_not_submitted_by_the_next_process(queue: SlowQueue) -> None:
    queue.engine.before = lambda: setattr(queue.engine, "away", True)
    with pytest.raises(InfrastructureError, match="Unable to contact slurm controller"):
        queue.go()
    queue.engine.before, queue.engine.away = lambda: None, False
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert run is not None
    assert not isinstance(run, Execution)
    with pytest.raises(InfrastructureError, match="slurm did not take its job"):
        run.wait()


def test_what_is_left_while_it_is_submitted_is_found_by_its_name(queue: SlowQueue) -> None:
    queue.slow("left")
    with pytest.raises(LeftRunningError, match="its submission goes on without this runner"):
        queue.go()
    queue.answers.set()
    queue.ask, queue.engine.before = None, lambda: None
    until(lambda: bool(queue.engine.jobs), why="the submission never arrived")
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert run is not None
    assert not isinstance(run, Execution)
    assert run.wait().ending == "exited"
    assert len(queue.engine.jobs) == 1


def test_a_submission_that_arrives_after_the_run_was_submitted_again_runs_nothing_twice(queue: SlowQueue) -> None:
    queue.slow("left")
    with pytest.raises(LeftRunningError):
        queue.go()
    queue.ask = None
    first, queue.engine.before = queue.engine.before, lambda: None
    assert queue.executor.recover(queue.handle, queue.hooks()) is None
    assert queue.executor.recover(queue.handle, queue.hooks()) is None  # killed before it was submitted again
    assert first is not None
    queue.answers.set()
    until(lambda: bool(queue.engine.jobs), why="the first submission never arrived")
    until(lambda: queue.engine.look("1").state == "ended", why="the first job was not refused")
    assert RunFolder(queue.handle).facts() is None
    (queue.base / "run").rename(queue.base / "before")
    assert queue.go().wait().ending == "exited"
    until(lambda: queue.engine.look("2").state == "ended", why="the second job never ended")
    assert [queue.engine.look(job).word for job in ("1", "2")] == ["FAILED", "COMPLETED"]
    assert bytes(queue.heard) == b"hello\n"


def test_while_nobody_knows_whether_it_waits_it_is_neither_ended_nor_submitted_again(queue: SlowQueue) -> None:
    queue.engine.slots = 0
    queue.ask = "left"
    with pytest.raises(LeftRunningError):
        queue.go()
    queue.ask, queue.engine.away = None, True
    with pytest.raises(LeftRunningError, match="whether it waits is not known yet: squeue"):
        queue.executor.recover(queue.handle, queue.hooks())
    assert RunFolder(queue.handle).withdrawn() is None


def test_what_has_begun_is_followed_though_the_engine_cannot_say_its_number(queue: SlowQueue) -> None:
    queue.left("import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)")
    submitted = load_submitted(queue.handle)
    assert submitted is not None
    save_submitted(queue.handle, submitted.evolve(job=None))
    queue.engine.away = True
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert run is not None
    assert not isinstance(run, Execution)
    (queue.base / "run" / "work" / "go").touch()
    assert run.wait().ending == "exited"


def test_a_run_that_goes_on_is_ended_though_its_engine_does_not_answer(queue: SlowQueue) -> None:
    queue.left(FOREVER)
    queue.slow("interrupted")
    queue.engine.ask_to_end = lambda _job: queue.answers.wait(ENGINE_S)  # type: ignore[method-assign, assignment]
    queue.ask = "interrupted"
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert run is not None
    assert not isinstance(run, Execution)
    began_s = CLOCK.steady_s()
    assert run.wait().ending == "interrupted"
    assert CLOCK.steady_s() - began_s < SOON_S
