"""Processor time of a run's supervisor, from its fork to its end, in runs whose program does nothing."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.study import Row, Study
from bridge.executor.interface import Hooks
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs

RUNS = 10
PROGRAMS = {"true": ("/bin/true",), "sleep 1 s": ("/bin/sleep", "1"), "python": (sys.executable, "-I", "-c", "pass")}
UNIT = "interpreter of a run's unit"
_IMPORTS = "from bridge.executor.supervisor.run_unit import preload; preload()"
_TICK_S = 0.01


def cases() -> Sequence[str]:
    """Return the programs, and what a run's unit of its own costs before it is a supervisor."""
    return (*PROGRAMS, UNIT)


def run(case: str) -> list[Row]:
    """Run the program some times and return the supervisor's processor seconds of each.

    The supervisor is read as often as it is followed, at last some milliseconds before it ends; what it uses after
    that, for the end of its own process, is not seen.
    """
    if case == UNIT:
        return [{"cpu_s": round(_imports_s(), 3)} for _ in range(RUNS)]
    clock = SystemClock()
    executor = LocalExecutor(clock)
    executor.host()
    executor.warm()
    time.sleep(3.0)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        base = Path(name)
        base.chmod(0o711)
        for number in range(RUNS):
            spec = Jobs(executor, base).spec(argv=[PROGRAMS[case]], outputs=())
            meter = _Meter()
            with executor.start(spec, make_directory(base / f"r{number}"), base / f"h{number}") as starting:
                execution = starting.go(Hooks(lambda _: None, meter.look, meter.started)).wait()
            rows.append({"cpu_s": meter.cpu_s, "wall_s": round(execution.wall_s, 3), "ok": execution.ok})
    return rows


def _imports_s() -> float:
    """Return the processor time of a fresh interpreter that imports what a run's unit does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-c", _IMPORTS], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class _Meter:
    """Reads one process's own processor time as often as it is asked."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._pid = 0

    def started(self, pid: int, _started: float, _marker: str) -> None:
        self._pid = pid

    def look(self) -> None:
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return
        self.cpu_s = (int(fields[11]) + int(fields[12])) * _TICK_S


STUDY = Study("supervisor-cost", "What does a supervisor cost a run?", cases, run)
