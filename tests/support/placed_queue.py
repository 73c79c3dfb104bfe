"""An executor over a cluster's engine that a test moves, and the one run that the test has there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.errors import LeftRunningError
from bridge.executor.engines.executor import EngineExecutor
from bridge.executor.engines.interface import ClusterEngine
from bridge.executor.engines.placed import ClusterQueue
from bridge.executor.interface import Hooks, HostPaths, LiveRun
from bridge.executor.trial import make_directory
from bridge.records.claim import RunProgress
from bridge.records.jobspec import JobSpec, SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs

CLOCK = SystemClock()
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"


@dataclass
class PlacedQueue:
    """Where the run is, what it says, and what it is asked."""

    base: Path
    engine: ClusterEngine
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
        def progress(latest: RunProgress) -> None:
            self.waits += [] if latest.waits is None else [latest.waits]

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
