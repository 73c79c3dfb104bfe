"""Real jobs for tests: build a job spec around a program, run it on this machine, see who is left."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bridge.executor.interface import Execution, Hooks, RunDirectory
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.ids import new_id
from bridge.limits import MIB
from bridge.records.jobspec import Command, DeclaredOutput, JobSpec, Limits, SandboxSpec

OTHER_UID = 54321
RUN_ID = new_id(1_763_000_000_000, os.urandom(10))
"""Of every job of this process: what other test processes run, or left behind, is theirs."""


@dataclass
class Jobs:
    """Runs programs as jobs of one kind of confinement and remembers what the hooks saw."""

    executor: LocalExecutor
    base: Path
    kind: str = "plain"
    heard: bytearray = field(default_factory=bytearray)
    started: list[tuple[int, float, str]] = field(default_factory=list)
    directory: RunDirectory | None = None
    handle: Path | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def sandbox(self, **fields) -> SandboxSpec:
        if self.kind == "plain":
            return SandboxSpec(mode="off", **fields)
        uid = OTHER_UID if self.kind == "other_user" else None
        return SandboxSpec(mode="required", uid=uid, **fields)

    def spec(
        self, *programs: str, argv=None, sandbox=None, environment=(), outputs=("report.json",), code="host", **limits
    ) -> JobSpec:
        bounds = {
            "wall_s": 240.0,
            "inactivity_s": 240.0,
            "grace_s": 0.3,
            "memory_bytes": 512 * MIB,
            "processes": 64,
            "open_files": 256,
            "output_bytes": 32 * MIB,
            "log_bytes": 256 * 1024,
        }
        commands = [(sys.executable, "-I", "-S", "-c", program) for program in programs]
        return JobSpec(
            id=RUN_ID,
            request_digest="0" * 64,
            preset="hostile",
            preset_digest="0" * 64,
            policy_digest="0" * 64,
            params={"k": 4},
            profile="smoke",
            code=code,
            trust_class="host" if code == "host" else "untrusted",
            commands=tuple(
                Command(name=f"c{index}", argv=command)
                for index, command in enumerate(commands if argv is None else argv)
            ),
            environment=tuple(environment),
            limits=Limits(**(bounds | limits)),
            sandbox=self.sandbox() if sandbox is None else sandbox,
            outputs=tuple(DeclaredOutput(path=path, kind="environment_probe") for path in outputs),
            gate_profile="smoke",
        )

    def run(self, *programs: str, stop=lambda: None, secrets=(), prepare=None, **fields) -> Execution:
        return self.execute(self.spec(*programs, **fields), stop=stop, secrets=secrets, prepare=prepare)

    def keeper(self) -> psutil.Process:
        """Return the subreaper of the command that runs now; its parent is the run's supervisor."""
        return psutil.Process(self.started[-1][0]).children()[0]

    def execute(self, spec: JobSpec, *, stop=lambda: None, secrets=(), prepare=None) -> Execution:
        name = f"run-{next(self.numbers)}"  # runs of a test may start together
        directory, self.handle = make_directory(self.base / name), self.base / f"{name}.handle"
        self.directory = directory
        if prepare is not None:
            prepare(directory)
        hooks = Hooks(
            on_log=self.heard.extend,
            on_started=lambda pid, started, marker: self.started.append((pid, started, marker)),
            should_stop=stop,
        )
        self.heard.clear()
        with self.executor.start(spec, directory, self.handle, tuple(secrets)) as starting:
            return starting.go(hooks).wait()


def living(token: str) -> list[str]:
    """Return the command lines of running processes that contain a token, by a way the executor does not use."""
    command_lines = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or folder.name == str(os.getpid()):
            continue
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and token.encode() in line:
            command_lines.append(line.replace(b"\0", b" ").decode("utf-8", "replace"))
    return command_lines
