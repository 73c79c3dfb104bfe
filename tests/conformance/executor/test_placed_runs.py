"""Runs that an engine places: what waits, what the engine ends or forgets, what a killed runner finds again."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.engines import placed
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.placed import settle_of
from bridge.executor.engines.probe import ask_node
from bridge.executor.engines.slurm import SlurmEngine, SlurmOptions
from bridge.executor.engines.submitted import load_submitted, save_submitted
from bridge.executor.holder.folder import RunFolder, take
from bridge.executor.interface import Execution
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.runner.maintenance.engine_checks import check_engine
from tests.fakes.local_engine import HOST, LocalEngine
from tests.support.placed_queue import CLOCK, FOREVER, PlacedQueue
from tests.support.waiting import PATIENCE_S, until


class LocalQueue(PlacedQueue):
    """One over the fake engine."""

    engine: LocalEngine


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[LocalQueue]:
    made = LocalQueue(tmp_path, LocalEngine())
    yield made
    made.engine.end_all()


def test_what_waits_says_where_and_is_cancelled_without_having_begun(queue: LocalQueue) -> None:
    queue.engine.slots = 0
    run = queue.go()
    real = queue.engine.look
    looks: list[object] = []

    def look(job: str) -> object:
        looks.append(job)
        queue.ask = "cancelled" if len(looks) > 1 else None
        return real(job)

    queue.engine.look = look  # type: ignore[method-assign]
    came_to = run.wait()
    assert queue.waits[0] == "queued on slurm: Resources, 1st of 1"
    assert (came_to.ending, came_to.commands, queue.engine.jobs[0].status.word) == ("cancelled", (), "CANCELLED")


def test_what_waits_longer_than_the_owner_allows_is_ended_with_the_engines_reason(queue: LocalQueue) -> None:
    queue.engine.slots, queue.longest_wait_s = 0, 0.1
    with pytest.raises(InfrastructureError, match=r"waited 0 s in the queue of slurm, the owner's longest"):
        queue.go().wait()


def test_what_will_never_begin_is_not_waited_for(queue: LocalQueue) -> None:
    queue.engine.slots, queue.longest_wait_s = 0, 3_600.0
    run = queue.go()
    job = queue.engine.jobs[0]
    job.status = replace(job.status, reason="PartitionTimeLimit", for_good=True)
    with pytest.raises(InfrastructureError, match=r"will never begin it: job 1, PENDING \(PartitionTimeLimit\)"):
        run.wait()
    until(lambda: queue.engine.jobs[0].status.word == "CANCELLED")


@pytest.mark.ci
def test_an_engine_is_looked_at_less_and_less_while_nothing_changes(
    queue: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hundredth of the pauses: looks at 0, 1, 5, 21 and 85 hundredths of a second, then each 1.2 s."""
    monkeypatch.setattr(placed, "_LOOK_S", 0.01)
    monkeypatch.setattr(placed, "_LOOK_MAX_S", 1.2)
    queue.engine.slots, queue.longest_wait_s = 0, 1.5
    real, looks = queue.engine.look, list[str]()

    def look(job: str) -> object:
        looks.append(job)
        return real(job)

    queue.engine.look = look  # type: ignore[method-assign]
    with pytest.raises(InfrastructureError, match="the owner's longest"):
        queue.go().wait()
    assert 3 <= len(looks) <= 7


def test_what_no_node_can_run_or_may_leave_processes_is_refused_before_it_is_queued(queue: LocalQueue) -> None:
    with pytest.raises(InfrastructureError, match="Invalid feature specification: cuda"):
        queue.go(queue.spec(placement=("cuda",)))
    (queue.base / "run").rename(queue.base / "refused")
    queue.engine.loose = "Slurm finds the processes of a job by proctrack/linuxproc"
    with pytest.raises(SandboxUnavailableError, match="this run wants no sandbox: Slurm finds"):
        queue.go()
    assert queue.engine.jobs == []


@pytest.mark.parametrize(("loose", "mode"), [("it loses what leaves a job", "required"), (None, "preferred")])
def test_a_run_that_would_do_without_a_sandbox_needs_one_where_the_engine_loses_processes(
    queue: LocalQueue, loose: str | None, mode: str
) -> None:
    queue.engine.loose = loose
    queue.executor.start(
        queue.spec(sandbox=SandboxSpec(mode="preferred")), make_directory(queue.base / "run"), queue.handle
    )
    job = RunFolder(queue.handle).job()
    assert job is not None
    assert job.spec.sandbox.mode == mode


def test_a_job_that_ended_without_a_result_is_interrupted_with_its_log(queue: LocalQueue) -> None:
    queue.left(FOREVER)
    supervisor = RunFolder(queue.handle).facts()
    assert supervisor is not None
    os.kill(supervisor.pid, 9)
    queue.engine.forgetful = True
    came_to = queue.executor.recover(queue.handle, queue.hooks()).wait()
    assert (came_to.ending, came_to.ok) == ("interrupted", False)
    assert came_to.log.startswith(b"up\n")
    assert "ended without a result" in str(came_to.message)


def test_a_lock_that_a_dead_node_still_holds_keeps_no_run(queue: LocalQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed, "_INSIST_S", 0.0)
    queue.left(FOREVER)
    folder = RunFolder(queue.handle)
    supervisor = folder.facts()
    assert supervisor is not None
    os.kill(supervisor.pid, 9)
    until(lambda: not folder.taken())
    given_up = threading.Timer(PATIENCE_S, setattr, (queue, "ask", "left"))
    with (queue.handle / "lock").open("rb+") as lock:  # as the file server does until it hears from the node again
        assert take(lock.fileno())
        given_up.start()
        try:
            came_to = queue.executor.recover(queue.handle, queue.hooks()).wait()
        finally:
            given_up.cancel()
    assert (came_to.ending, came_to.log) == ("interrupted", b"up\n")
    assert "ended without a result" in str(came_to.message)


def test_what_outlives_its_job_for_a_moment_still_writes_its_result(queue: LocalQueue) -> None:
    run = queue.go(queue.spec("import time\nprint('up', flush=True)\ntime.sleep(2)\nprint('done')"))
    real, jobs = queue.engine.look, []

    def look(job: str) -> object:
        status = real(job)
        if status is None or status.state == "queued":
            return status
        jobs.append(status)
        return replace(status, state="ended", word="FAILED")

    queue.engine.look = look  # type: ignore[method-assign]
    came_to = run.wait()
    assert (came_to.ending, came_to.log) == ("exited", b"up\ndone\n")
    assert jobs


def test_a_runner_killed_before_it_had_the_number_finds_its_job_by_name_and_submits_no_second(
    queue: LocalQueue,
) -> None:
    queue.left(FOREVER)
    submitted = load_submitted(queue.handle)
    assert submitted is not None
    save_submitted(queue.handle, submitted.evolve(job=None))
    queue.ask = "interrupted"
    assert queue.executor.recover(queue.handle, queue.hooks()).wait().ending == "interrupted"
    assert len(queue.engine.jobs) == 1
    save_submitted(queue.handle, submitted.evolve(name="kakeya-never-sent-1", job=None))
    (queue.handle / "lock").write_bytes(b"")
    (queue.handle / "kept.json").write_bytes(b"")
    assert queue.executor.recover(queue.handle, queue.hooks()) is None


def test_an_engine_that_does_not_answer_ends_nothing_that_runs(queue: LocalQueue) -> None:
    queue.left("import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)")
    queue.engine.away = True
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert not isinstance(run, Execution)
    (queue.base / "run" / "work" / "go").touch()
    assert run.wait().ending == "exited"


def test_a_folder_that_a_job_had_once_is_never_run_again(queue: LocalQueue) -> None:
    came_to = queue.go().wait()
    assert came_to.ending == "exited"
    job = queue.engine.submit("again", queue.engine.jobs[0].argv, queue.handle / "engine.log", JobNeeds((), 60.0))
    until(lambda: queue.engine.look(job).state == "ended", why="the second job never ended")
    assert queue.engine.look(job).word == "FAILED"
    assert "has a supervisor, or had one" in (queue.handle / "engine.log").read_text()
    assert queue.executor.recover(queue.handle, queue.hooks()) == came_to


def test_a_node_answers_what_it_sees_of_the_shared_folder(queue: LocalQueue) -> None:
    def argv(folder: Path) -> tuple[str, ...]:
        return (sys.executable, "-m", HOST, "supervise", "--probe", str(folder))

    probe = ask_node(queue.engine, queue.base, argv, CLOCK, patience_s=240.0)
    assert probe.problems() == ()
    assert probe.answer.held
    assert probe.answer.sandbox.trial is not None or probe.answer.sandbox.reason
    assert not list(queue.base.glob("probe-*"))
    queue.engine.slots = 0
    with pytest.raises(InfrastructureError, match="no node answered in this folder; job 2 is PENDING Resources"):
        ask_node(queue.engine, queue.base, argv, CLOCK, patience_s=0.1)


def test_a_node_of_each_label_is_asked_too(queue: LocalQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.runner.maintenance.engine_checks.os.geteuid", lambda: 1000)  # root submits nothing
    queue.engine.slots, queue.engine.features = 2, ("gpu",)
    labels = ("gpu", "nowhere")
    checks = list(check_engine(queue.engine, queue.base, sys.executable, CLOCK, patience_s=240.0, labels=labels))
    folders = [check.text for check in checks if check.name == "shared folder"]
    assert len(folders) == 3
    assert [" under the label gpu" in text for text in folders] == [False, True, False]
    assert folders[2].endswith("under the label nowhere: sbatch: error: Invalid feature specification: nowhere")
    assert checks[-1].level == "warn"  # nodes of a label may be busy, which says nothing against them
    assert sum(check.name == "sandbox" for check in checks) == 2


def test_only_a_network_file_system_is_waited_for(tmp_path: Path) -> None:
    assert settle_of(tmp_path) < 5.0
    assert settle_of(Path("/proc")) == 70.0  # any that is not known to be a disk of this machine


def test_a_runner_that_is_root_submits_nothing_to_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bridge.executor.engines.slurm.os.geteuid", lambda: 0)
    with pytest.raises(InfrastructureError, match="a runner that is root submits nothing"):
        SlurmEngine(SlurmOptions(), CLOCK).submit("a", ("true",), tmp_path / "log", JobNeeds((), 60.0))
