"""Processor time of a run's supervisor, from its fork to its end, in runs whose program does nothing."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from benchmarks.studies.study import Row, Study
from bridge.executor.interface import Hooks
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.records import SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
from tests.support.run_unit import listening

RUNS = 10
PROGRAMS = {"true": ("/bin/true",), "sleep 1 s": ("/bin/sleep", "1"), "python": (sys.executable, "-I", "-c", "pass")}
UNIT = "true, behind a service manager's socket"
_TICK_S = 0.01


def cases() -> Sequence[str]:
    """Return the programs, and the first one behind the socket of a stub of a service manager."""
    return (*PROGRAMS, UNIT)


def run(case: str) -> list[Row]:
    """Run the program some times and return the supervisor's processor seconds of each.

    The supervisor is read as often as it is followed, at last some milliseconds before it ends; what it uses after
    that, for the end of its own process, is not seen. Behind a socket, what the process that holds it spends on each
    run is added; its own start is not, which no run waits for and the first one after the runner's start uses.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name, ExitStack() as stack:
        base = Path(name)
        base.chmod(0o711)
        if case != UNIT:
            executor = _executor()
            return [_one(executor, base, number, PROGRAMS[case]).row for number in range(RUNS)]
        executor = _executor(stack.enter_context(listening(base / "run.sock")))
        spent = [_one(executor, base, number, PROGRAMS["true"], "required") for number in range(RUNS + 1)]
        return [
            now.row | {"cpu_s": round(now.cpu_s + now.held_s - before.held_s, 3), "held_again": now.by == before.by}
            for before, now in pairwise(spent)
        ]


def _executor(service: str | None = None) -> LocalExecutor:
    executor = LocalExecutor(SystemClock(), service=service)
    executor.host()
    executor.warm()
    time.sleep(3.0)
    return executor


def _one(executor: LocalExecutor, base: Path, number: int, argv: Sequence[str], mode: str | None = None) -> _Meter:
    spec = Jobs(executor, base).spec(argv=[tuple(argv)], outputs=())
    spec = spec if mode is None else spec.evolve(sandbox=SandboxSpec(mode=mode))
    meter = _Meter()
    with executor.start(spec, make_directory(base / f"r{number}"), base / f"h{number}") as starting:
        execution = starting.go(Hooks(lambda _: None, meter.look, meter.started)).wait()
    meter.row = {"cpu_s": meter.cpu_s, "wall_s": round(execution.wall_s, 3), "ok": execution.ok}
    if mode is not None:
        time.sleep(1.0)  # the process that held it clears up
        meter.held_s = _spent_s(meter.by)
    return meter


def _spent_s(pid: int) -> float:
    """Return a process's own processor time; 0 where it is gone."""
    try:
        fields = _stat(pid)
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _stat(pid: int) -> list[bytes]:
    """Return what proc(5) says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


class _Meter:
    """Reads the processor time of a run's supervisor as often as it is asked.

    Attributes:
        by: the process that started it.
        held_s: what that one had spent when the run was over.
    """

    def __init__(self) -> None:
        self.cpu_s = self.held_s = 0.0
        self.by = self._pid = 0
        self.row: Row = {}

    def started(self, pid: int, _started: float, _marker: str) -> None:
        self._pid, self.by = pid, int(_stat(pid)[1])

    def look(self) -> None:
        self.cpu_s = max(self.cpu_s, _spent_s(self._pid))


STUDY = Study("supervisor-cost", "What does a supervisor cost a run?", cases, run)
