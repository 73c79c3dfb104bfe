"""Runs that an engine places: what waits, what the engine ends or forgets, what a killed runner finds again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError, LeftRunningError, SandboxUnavailableError
from bridge.executor.engines.executor import EngineExecutor
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.placed import ClusterQueue, settle_of
from bridge.executor.engines.probe import ask_node
from bridge.executor.engines.submitted import load_submitted, save_submitted
from bridge.executor.interface import Execution, Hooks, HostPaths, LiveRun
from bridge.executor.supervisor.folder import RunFolder
from bridge.executor.trial import make_directory
from bridge.records import JobSpec, RunProgress, SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_engine import HOST, LocalEngine
from tests.fakes.local_jobs import Jobs
from tests.support.waiting import until

CLOCK = SystemClock()
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"


@dataclass
class Queue:
    """An executor over an engine that a test moves."""

    base: Path
    engine: LocalEngine = field(default_factory=LocalEngine)
    longest_wait_s: float = 600.0
    heard: bytearray = field(default_factory=bytearray)
    waits: list[str] = field(default_factory=list)
    ask: str | None = None

    @property
    def executor(self) -> EngineExecutor:
        placement = ClusterQueue(self.engine, self.longest_wait_s, settle_s=0.2)
        return EngineExecutor(CLOCK, placement, HostPaths(), self.base / "trials")

    @property
    def handle(self) -> Path:
        return self.base / "handle"

    def spec(self, program: str = "print('hello')", **changes: object) -> JobSpec:
        argv = [(sys.executable, "-I", "-S", "-c", program)]
        return Jobs(executor=None, base=None).spec(argv=argv, sandbox=SandboxSpec(mode="off")).evolve(**changes)

    def hooks(self) -> Hooks:
        def progress(seen: RunProgress) -> None:
            self.waits += [] if seen.waits is None else [seen.waits]

        return Hooks(on_log=self.heard.extend, should_stop=lambda: self.ask, on_progress=progress)

    def go(self, spec: JobSpec | None = None) -> LiveRun:
        with self.executor.start(spec or self.spec(), make_directory(self.base / "run"), self.handle) as starting:
            return starting.go(self.hooks())

    def left(self, program: str) -> None:
        """Start a run and leave it once it has said something."""
        run, heard = self.go(self.spec(program)), self.heard
        self.ask = "left"
        hooks = Hooks(on_log=heard.extend, should_stop=lambda: "left" if heard else None)
        with pytest.raises(LeftRunningError):
            self.executor.recover(self.handle, hooks).wait()
        assert run is not None
        self.ask = None


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path)
    yield made
    made.engine.end_all()


def test_what_waits_says_where_and_is_cancelled_without_having_begun(queue: Queue) -> None:
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
    assert (came_to.ending, came_to.commands, queue.engine.jobs[0].seen.word) == ("cancelled", (), "CANCELLED")


def test_what_waits_longer_than_the_owner_allows_is_ended_with_the_engines_reason(queue: Queue) -> None:
    queue.engine.slots, queue.longest_wait_s = 0, 0.1
    with pytest.raises(InfrastructureError, match=r"waited 0 s in the queue of slurm, the owner's longest"):
        queue.go().wait()


def test_what_no_node_can_run_or_may_leave_processes_is_refused_before_it_is_queued(queue: Queue) -> None:
    with pytest.raises(InfrastructureError, match="Invalid feature specification: cuda"):
        queue.go(queue.spec(placement=("cuda",)))
    (queue.base / "run").rename(queue.base / "refused")
    queue.engine.loose = "Slurm finds the processes of a job by proctrack/linuxproc"
    with pytest.raises(SandboxUnavailableError, match="this run wants no sandbox: Slurm finds"):
        queue.go()
    assert queue.engine.jobs == []


def test_a_job_that_ended_without_a_result_is_interrupted_with_its_log(queue: Queue) -> None:
    queue.left(FOREVER)
    supervisor = RunFolder(queue.handle).facts()
    assert supervisor is not None
    os.kill(supervisor.pid, 9)
    queue.engine.forgetful = True
    came_to = queue.executor.recover(queue.handle, queue.hooks()).wait()
    assert (came_to.ending, came_to.ok) == ("interrupted", False)
    assert came_to.log.startswith(b"up\n")
    assert "ended without a result" in str(came_to.message)


def test_a_runner_killed_before_it_had_the_number_finds_its_job_by_name_and_submits_no_second(queue: Queue) -> None:
    queue.left(FOREVER)
    known = load_submitted(queue.handle)
    assert known is not None
    save_submitted(queue.handle, known.evolve(job=None))
    queue.ask = "interrupted"
    assert queue.executor.recover(queue.handle, queue.hooks()).wait().ending == "interrupted"
    assert len(queue.engine.jobs) == 1
    save_submitted(queue.handle, known.evolve(name="kakeya-never-sent-1", job=None))
    (queue.handle / "lock").write_bytes(b"")
    (queue.handle / "kept.json").write_bytes(b"")
    assert queue.executor.recover(queue.handle, queue.hooks()) is None


def test_an_engine_that_does_not_answer_ends_nothing_that_runs(queue: Queue) -> None:
    queue.left("import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)")
    queue.engine.away = True
    run = queue.executor.recover(queue.handle, queue.hooks())
    assert not isinstance(run, Execution)
    (queue.base / "run" / "work" / "go").touch()
    assert run.wait().ending == "exited"


def test_a_folder_that_a_job_had_once_is_never_run_again(queue: Queue) -> None:
    came_to = queue.go().wait()
    assert came_to.ending == "exited"
    job = queue.engine.submit("again", queue.engine.jobs[0].argv, queue.handle / "engine.log", JobNeeds((), 60.0))
    until(lambda: queue.engine.look(job).state == "ended", why="the second job never ended")
    assert queue.engine.look(job).word == "FAILED"
    assert "has a supervisor, or had one" in (queue.handle / "engine.log").read_text()
    assert queue.executor.recover(queue.handle, queue.hooks()) == came_to


def test_a_node_answers_what_it_sees_of_the_shared_folder(queue: Queue) -> None:
    def argv(folder: Path) -> tuple[str, ...]:
        return (sys.executable, "-m", HOST, "supervise", "--probe", str(folder))

    found = ask_node(queue.engine, queue.base, argv, CLOCK, patience_s=240.0)
    assert found.problems() == ()
    assert found.answer.held
    assert not list(queue.base.glob("probe-*"))
    queue.engine.slots = 0
    with pytest.raises(InfrastructureError, match="no node answered in this folder; job 2 is PENDING Resources"):
        ask_node(queue.engine, queue.base, argv, CLOCK, patience_s=0.1)


def test_only_a_network_file_system_is_waited_for(tmp_path: Path) -> None:
    assert settle_of(tmp_path) < 5.0
    assert settle_of(Path("/proc")) == 70.0  # any that is not known to be a disk of this machine
