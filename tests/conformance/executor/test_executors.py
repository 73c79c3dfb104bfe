"""What every executor promises the runner: the real one, one that an engine places runs for, and the tests' fake."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from bridge.errors import LeftRunningError
from bridge.executor.engines.executor import EngineExecutor
from bridge.executor.engines.interface import ClusterEngine
from bridge.executor.engines.placed import ClusterQueue
from bridge.executor.engines.ray import RayOptions
from bridge.executor.interface import Execution, Executor, Hooks, HostPaths, RunDirectory, Starting
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.records.claim import RunProgress
from bridge.records.jobspec import JobSpec, SandboxSpec
from bridge.records.run import HostRecord, SandboxApplied
from bridge.system.clock import SystemClock, parse_rfc3339
from tests.fakes.fake_executor import FakeExecutor
from tests.fakes.local_engine import LocalEngine
from tests.fakes.local_jobs import Jobs
from tests.fakes.ray_jobs import HeldRay, ray_jobs

# A program in both languages: what a process runs, and what the fake runs. They say the same thing.
HELLO = "hello\n"


def fake_program(spec: JobSpec, directory: RunDirectory) -> Iterator[bytes]:
    what = spec.commands[0].argv[-1]
    if "report" in what:
        (directory.out / "parts").mkdir()
        (directory.out / "parts" / "report.json").write_text("{}")
    yield HELLO.encode()
    while "forever" in what:
        yield b"."
    return 3 if "fail" in what else 0


PROGRAMS = {
    "plain": "print('hello')",
    "fail": "print('hello', flush=True); raise SystemExit(3)  # fail",
    "report": "import os\nos.mkdir(os.environ['KAKEYA_OUT'] + '/parts')\n"
    "open(os.environ['KAKEYA_OUT'] + '/parts/report.json', 'w').write('{}')\nprint('hello')",
    "forever": "import time\nprint('hello', flush=True)\nwhile True: time.sleep(0.05)  # forever",
}


@dataclass
class Ran:
    """One execution and everything the hooks were told, in order."""

    execution: Execution
    events: list[tuple[str, bytes]]


@dataclass
class Bench:
    """Runs the programs on one executor."""

    executor: Executor
    base: Path
    stop_with: Literal["cancelled", "interrupted"] | None = None
    events: list[tuple[str, bytes]] = field(default_factory=list)
    progress: list[RunProgress] = field(default_factory=list)

    def run(self, *names: str) -> Ran:
        def should_stop():
            heard = any(kind == "log" for kind, _ in self.events)
            return self.stop_with if heard else None

        hooks = Hooks(
            on_log=lambda block: self.events.append(("log", block)),
            on_started=lambda pid, started, marker: self.events.append(("started", marker.encode())),
            should_stop=should_stop,
            on_progress=self.progress.append,
        )
        argv = [(sys.executable, "-I", "-S", "-c", PROGRAMS[name]) for name in names]
        spec = Jobs(executor=None, base=None).spec(argv=argv, sandbox=SandboxSpec(mode="off"))
        with self.executor.start(spec, make_directory(self.base / "run"), self.handle) as starting:
            return Ran(starting.go(hooks).wait(), self.events)

    @property
    def handle(self) -> Path:
        return self.base / "handle"

    def start(self, name: str) -> Starting:
        argv = (sys.executable, "-I", "-S", "-c", PROGRAMS[name])
        spec = Jobs(executor=None, base=None).spec(argv=[argv], sandbox=SandboxSpec(mode="off"))
        return self.executor.start(spec, make_directory(self.base / "run"), self.handle)

    def hooks(self, stop: Callable[[], str | None] = lambda: None) -> Hooks:
        return Hooks(on_log=lambda block: self.events.append(("log", block)), should_stop=stop)

    def heard(self) -> bool:
        return any(kind == "log" for kind, _ in self.events)


@pytest.fixture(params=["local", "slurm", "ray", "fake"])
def bench(request, tmp_path, monkeypatch) -> Iterator[Bench]:
    clock = SystemClock()

    def on(engine: ClusterEngine) -> EngineExecutor:
        queue = ClusterQueue(engine, longest_wait_s=600.0, settle_s=0.2)
        return EngineExecutor(clock, queue, HostPaths(), tmp_path / "trials")

    if request.param == "ray":
        monkeypatch.setattr("bridge.executor.engines.ray.os.geteuid", lambda: 1000)
        with ray_jobs() as site:
            yield Bench(on(HeldRay(site.address, lambda: None, RayOptions(), clock)), tmp_path)
    elif request.param == "slurm":
        engine = LocalEngine()
        yield Bench(on(engine), tmp_path)
        engine.end_all()
    else:
        yield Bench(LocalExecutor(clock) if request.param == "local" else FakeExecutor(clock, fake_program), tmp_path)


def test_a_program_that_ends_well(bench):
    execution = bench.run("plain").execution

    assert (execution.ok, execution.ending, execution.program_exit, execution.message) == (True, "exited", 0, None)
    assert execution.limits_hit == ()
    assert [(command.exit_code, command.signal, command.survivors) for command in execution.commands] == [(0, None, 0)]


def test_a_program_that_fails_is_no_failure_of_the_executor(bench):
    execution = bench.run("fail").execution

    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 3)


def test_commands_stop_at_the_first_that_fails(bench):
    ran = bench.run("fail", "plain")

    assert [command.name for command in ran.execution.commands] == ["c0"]


def test_a_run_is_announced_before_it_says_anything(bench):
    ran = bench.run("plain", "plain")
    kinds = [kind for kind, _ in ran.events]

    assert kinds[0] == "started"
    assert kinds.count("started") == 1


def test_the_last_step_that_was_told_is_the_last_that_ran(bench):
    bench.run("plain", "plain")

    assert [(progress.step, progress.number, progress.steps) for progress in bench.progress][-1] == ("c1", 2, 2)


def test_the_log_is_what_the_hook_heard_in_order(bench):
    ran = bench.run("plain", "plain")

    assert ran.execution.log == b"".join(block for kind, block in ran.events if kind == "log")
    assert ran.execution.log == 2 * HELLO.encode()
    assert ran.execution.log_truncated_bytes == 0


def test_reports_come_with_path_size_and_digest(bench):
    execution = bench.run("report").execution

    assert execution.reports == {"parts/report.json": b"{}"}
    assert [(output.path, output.bytes, output.sha256, output.after_start) for output in execution.outputs] == [
        ("parts/report.json", 2, hashlib.sha256(b"{}").hexdigest(), True)
    ]


@pytest.mark.parametrize("ending", ["cancelled", "interrupted"])
def test_a_stop_ends_the_run_with_the_ending_asked_for(bench, ending):
    bench.stop_with = ending
    execution = bench.run("forever", "plain").execution

    assert (execution.ok, execution.ending) == (True, ending)
    assert execution.program_exit is not None
    assert execution.program_exit > 128
    assert len(execution.commands) == 1
    assert execution.commands[0].exit_code is None
    assert execution.commands[0].signal is not None


def test_times_run_forward(bench):
    execution = bench.run("plain", "plain").execution
    first, second = execution.commands

    assert 0 <= first.started_s <= first.ended_s <= second.started_s <= second.ended_s <= execution.wall_s


def test_host_and_sandbox_are_records(bench):
    assert isinstance(bench.executor.host(), HostRecord)
    assert isinstance(bench.executor.sandbox(), SandboxApplied)


def test_the_execution_says_where_and_when_it_ran(bench):
    execution = bench.run("plain").execution

    assert execution.host == bench.executor.host()
    assert parse_rfc3339(execution.ended) <= SystemClock().now()


def test_of_a_folder_in_which_nothing_ran_nothing_is_known(bench):
    assert bench.executor.recover(bench.base / "no-such-folder", bench.hooks()) is None
    with bench.start("plain"):
        pass  # given up: its runner died before it said go

    assert bench.executor.recover(bench.handle, bench.hooks()) is None
    assert bench.events == []


def test_what_has_ended_is_told_again_from_its_folder(bench):
    execution = bench.run("report").execution

    assert bench.executor.recover(bench.handle, bench.hooks()) == execution


def test_a_run_that_was_left_goes_on_and_is_followed_by_who_has_its_folder(bench):
    with bench.start("forever") as starting:
        running = starting.go(bench.hooks(lambda: "left" if bench.heard() else None))
        with pytest.raises(LeftRunningError):
            running.wait()
    bench.events.clear()
    again = bench.executor.recover(bench.handle, bench.hooks(lambda: "cancelled" if bench.heard() else None))
    execution = again.wait()

    assert (execution.ok, execution.ending) == (True, "cancelled")
    assert bench.executor.recover(bench.handle, bench.hooks()) == execution


def test_a_run_that_goes_on_can_be_stopped_without_waiting(bench):
    with bench.start("forever") as starting:
        running = starting.go(bench.hooks())
        running.stop()

    assert running.wait().ending == "interrupted"
