"""An executor whose programs are Python functions: no process, the same promises otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from bridge.errors import LeftRunningError
from bridge.executor.interface import HOST_KIND, Escape, Execution, Handle, Hooks, RunDirectory, RunKind
from bridge.records.claim import RunProgress
from bridge.records.jobspec import JobSpec
from bridge.records.run import CommandResult, HostRecord, OutputRecord, SandboxApplied
from bridge.system.clock import Clock, rfc3339

# A program yields log bytes; between two of them it can be stopped. It returns its exit code.
Stop = Literal["cancelled", "interrupted"] | None
Program = Callable[[JobSpec, RunDirectory], Iterator[bytes]]
NO_SANDBOX = SandboxApplied(
    kind="none", reason="a fake executor starts nothing", network="host", namespaces=(), filters=(), uid=0
)


@dataclass
class FakeExecutor:
    """Runs one program per command; remembers what it was asked to do."""

    clock: Clock
    program: Program
    executed: list[JobSpec] = field(default_factory=list)
    executions: dict[Handle, Execution | FakeRunning] = field(default_factory=dict)

    def host(self) -> HostRecord:
        return HostRecord(
            name="fake",
            os="Linux",
            os_version="1",
            machine="x86_64",
            cpu="fake",
            cpu_count=1,
            memory_bytes=1 << 30,
            devices=(),
            drivers={},
            virtualised="unknown",
        )

    def sandbox(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxApplied:
        return NO_SANDBOX

    def escapes(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> tuple[Escape, ...]:
        return ()

    def start(
        self, spec: JobSpec, directory: RunDirectory, handle: Handle, secrets: tuple[str, ...] = ()
    ) -> FakeStarting:
        handle.mkdir(exist_ok=True)
        return FakeStarting(self, spec, directory, handle)

    def recover(self, handle: Handle, hooks: Hooks) -> Execution | FakeRunning | None:
        execution = self.executions.get(handle)
        if isinstance(execution, FakeRunning):
            execution.hooks = hooks
        return execution

    def run(self, spec: JobSpec, directory: RunDirectory, hooks: Hooks, order: Callable[[], Stop]) -> Execution:
        began_s = self.clock.steady_s()
        log = b""
        stop: Stop = None
        exit_code: int | None = None
        results: list[CommandResult] = []
        hooks.on_started(0, 0.0, f"{spec.id}-fake")
        for number, command in enumerate(spec.commands, 1):
            hooks.on_progress(RunProgress(step=command.name, number=number, steps=len(spec.commands)))
            started_s = self.clock.steady_s() - began_s
            running = self.program(spec, directory)
            while True:
                stop = order()
                if stop is not None:
                    exit_code = None
                    break
                try:
                    chunk = next(running)
                except StopIteration as ended:
                    exit_code = int(ended.value or 0)
                    break
                log += chunk
                hooks.on_log(chunk)
            results.append(
                CommandResult(
                    name=command.name,
                    argv=command.argv,
                    started_s=started_s,
                    ended_s=self.clock.steady_s() - began_s,
                    exit_code=exit_code,
                    signal=None if stop is None else 9,
                    peak_rss_bytes=1,
                    cpu_s=0.0,
                    survivors=0,
                )
            )
            if stop is not None or exit_code != 0:
                break
        reports = {
            path.relative_to(directory.out).as_posix(): path.read_bytes()
            for path in sorted(directory.out.rglob("*"))
            if path.is_file()
        }
        return Execution(
            ok=True,
            ending=stop or "exited",
            program_exit=137 if stop is not None else exit_code,
            message=None,
            commands=tuple(results),
            limits_hit=(),
            sandbox=NO_SANDBOX,
            telemetry=None,
            sample_marks=(),
            sample_marks_dropped=0,
            outputs=tuple(
                OutputRecord(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), after_start=True)
                for path, data in reports.items()
            ),
            reports=reports,
            log=log,
            log_truncated_bytes=0,
            redactions=0,
            wall_s=self.clock.steady_s() - began_s,
            host=self.host(),
            ended=rfc3339(self.clock.now()),
        )


@dataclass
class FakeStarting(AbstractContextManager["FakeStarting"]):
    """A program that has not begun."""

    executor: FakeExecutor
    spec: JobSpec
    directory: RunDirectory
    handle: Handle

    def go(self, hooks: Hooks) -> FakeRunning:
        if hooks.should_stop() == "left":
            raise LeftRunningError("it is left before it begins")
        self.executor.executed.append(self.spec)
        running = FakeRunning(self.executor, self.spec, self.directory, self.handle, hooks)
        self.executor.executions[self.handle] = running
        return running

    def __exit__(self, *_: object) -> None:
        return None


@dataclass
class FakeRunning:
    """A program that runs while somebody waits for it; who leaves it leaves it where it is."""

    executor: FakeExecutor
    spec: JobSpec
    directory: RunDirectory
    handle: Handle
    hooks: Hooks
    stopped: bool = False

    def wait(self) -> Execution:
        def order() -> Stop:
            stop = "interrupted" if self.stopped else self.hooks.should_stop()
            if stop == "left":
                raise LeftRunningError("the run goes on without this runner")
            return stop

        ended = self.executor.run(self.spec, self.directory, self.hooks, order)
        self.executor.executions[self.handle] = ended
        return ended

    def stop(self) -> None:
        self.stopped = True
