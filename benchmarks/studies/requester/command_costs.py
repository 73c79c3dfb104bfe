"""What it costs to ask: processor time of whole processes, interpreter and imports included.

`--help` is taken in turns with an interpreter that does nothing; `status` is of a run that goes on, of one
whose result is fetched, and of one whose result is here; `ls` is of a bus with ten thousand runs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.studies.bus.histories import History, write_history
from benchmarks.studies.study import Row, Study
from bridge.bus import open_bus
from bridge.system.clock import SystemClock
from tests.fakes.clone import Clone
from tests.fakes.git_servers import bare
from tests.fakes.memory_bus import bus_record
from tests.fakes.scripted_host import ScriptedHost

REPEATS = 21
RUNS = 10_000
MAC = ("-m", "bridge.cli.mac.main")
CASES = ("help", "status", "ls")


def cases() -> Sequence[str]:
    """Return the commands."""
    return CASES


def run(case: str) -> list[Row]:
    """Measure one command."""
    with tempfile.TemporaryDirectory(prefix="kakeya-speed-") as folder:
        return [_MEASURED[case](Path(folder))]


def _help(folder: Path) -> Row:
    nothing, help_s = [], []
    for _ in range(REPEATS):
        nothing.append(_spent(["-c", "pass"], folder, {})["cpu_s"])
        help_s.append(_spent([*MAC, "--help"], folder, {})["cpu_s"])
    return {
        "pass_cpu_s": median(nothing),
        "help_cpu_s": median(help_s),
        "ratio": round(median(help_s) / median(nothing), 2),
    }


def _status(folder: Path) -> Row:
    clock, clone = SystemClock(), Clone(folder)
    route = str(bare(folder / "bus.git"))
    bus = open_bus(route, repository=None, state=folder / "host", clock=clock)
    bus.create(bus_record(clock))
    host = ScriptedHost(bus, clock)
    host.beat()
    run_id = clone.mac("run", "mlx-env-probe", "--bus", route).stdout.strip()
    host.claim(run_id)
    host.start(run_id)
    running = [_spent([*MAC, "status", run_id, "--bus", route], clone.top, clone.env) for _ in range(REPEATS // 3)]
    host.finish(run_id)
    words = [*MAC, "status", run_id, "--bus", route]
    first = _spent(words, clone.top, clone.env)
    stored = [_spent(words, clone.top, clone.env) for _ in range(REPEATS // 3)]
    return {
        "running_cpu_s": median(cost["cpu_s"] for cost in running),
        "fetching_cpu_s": first["cpu_s"],
        "stored_cpu_s": median(cost["cpu_s"] for cost in stored),
    }


def _ls(folder: Path) -> Row:
    clock, clone = SystemClock(), Clone(folder)
    remote = bare(folder / "bus.git")
    bus = open_bus(str(remote), repository=None, state=folder / "host", clock=clock)
    bus.create(bus_record(clock))
    write_history(remote, History(RUNS, 300), clock.now())
    words = [*MAC, "ls", "--bus", str(remote)]
    _spent(words, clone.top, clone.env)
    costs = [_spent(words, clone.top, clone.env) for _ in range(REPEATS // 3)]
    return {"runs": RUNS} | {key: median(cost[key] for cost in costs) for key in ("cpu_s", "wall_s")}


_MEASURED: dict[str, Callable[[Path], Row]] = {"help": _help, "status": _status, "ls": _ls}


def _spent(words: Sequence[str], folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Return processor and wall seconds of a process and its children.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True
    )  # fmt: skip
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"cpu_s": round(spent_s, 4), "wall_s": round(wall_s, 4)}


STUDY = Study("command-costs", "What does it cost to ask?", cases, run, "seconds")
