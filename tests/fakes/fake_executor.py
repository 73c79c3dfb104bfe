"""An executor whose programs are Python functions: no process, the same promises otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from bridge.executor.interface import HOST_KIND, Escape, Execution, Hooks, RunDirectory, RunKind
from bridge.records import CommandResult, HostRecord, JobSpec, OutputRecord, SandboxApplied
from bridge.system.clock import Clock

# A program yields log bytes; between two of them it can be stopped. It returns its exit code.
Program = Callable[[JobSpec, RunDirectory], Iterator[bytes]]
NO_SANDBOX = SandboxApplied(
    kind="none", reason="a fake executor starts nothing", network=True, namespaces=(), filters=(), uid=0
)


@dataclass
class FakeExecutor:
    """Runs one program per command; remembers what it was asked to do."""

    clock: Clock
    program: Program
    executed: list[JobSpec] = field(default_factory=list)
    killed: list[tuple[int, float, str]] = field(default_factory=list)

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

    def kill_leftovers(self, pid: int, started: float, marker: str) -> int:
        self.killed.append((pid, started, marker))
        return 0

    def execute(self, spec: JobSpec, directory: RunDirectory, hooks: Hooks, secrets: tuple[str, ...] = ()) -> Execution:
        self.executed.append(spec)
        began_s = self.clock.steady_s()
        log = b""
        stop: Literal["cancelled", "interrupted"] | None = None
        exit_code: int | None = None
        results: list[CommandResult] = []
        for command in spec.commands:
            hooks.on_started(0, 0.0, f"{spec.id}-fake")
            started_s = self.clock.steady_s() - began_s
            running = self.program(spec, directory)
            while True:
                stop = hooks.should_stop()
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
        )
