"""From a cancel that the runner has seen to a tree of processes of which none is left; target: within 1 s.

Beside it the floor: the same tree killed by its process group and reaped, which is what a shell would do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import Timing, interleave, ratio
from bridge.executor import local_executor
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs, living

# A tree of five: a shell would end it at a TERM, nothing in it ignores one.
TREE = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        os.fork()
        time.sleep(600)
print("up", flush=True)
time.sleep(600)
"""


def measure(repeats: int = 15) -> list[Figure]:
    """Return medians of the same interleaved run."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "runs"
        base.mkdir()
        jobs = Jobs(local_executor(clock), base)  # type: ignore[arg-type]
        cancelled_s: list[float] = []
        floors: list[float] = []
        ways: dict[str, Callable[[], object]] = {
            "cancel": lambda: cancelled_s.append(_cancelled(jobs)),
            "floor": lambda: floors.append(_killed()),
        }
        interleave(ways, repeats)
    if left := living("time.sleep(600)"):
        raise RuntimeError(f"processes were left: {left}")
    timings = {"cancel": Timing(tuple(cancelled_s[-repeats:])), "floor": Timing(tuple(floors[-repeats:]))}
    return [
        Figure("killpg and wait of the same tree", round(timings["floor"].median_s * 1e3, 1), "ms"),
        Figure("cancel seen to dead tree p50", round(timings["cancel"].median_s * 1e3, 1), "ms", 1000.0),
        Figure("cancel seen to dead tree p90", round(timings["cancel"].p90_s * 1e3, 1), "ms", 1000.0),
        Figure("cancel to killpg", round(ratio(timings, "cancel", "floor"), 2), "ratio"),
    ]


def _cancelled(jobs: Jobs) -> float:
    """Run the tree, cancel it once it is up, and return the seconds until the executor vouches for its death."""
    cancelled_s: list[float] = []
    heard = threading.Event()

    def stop() -> Literal["cancelled"] | None:
        if not cancelled_s and b"up" in jobs.heard:
            cancelled_s.append(time.perf_counter())
            heard.set()
        return "cancelled" if cancelled_s else None

    execution = jobs.run(TREE, stop=stop)
    ended_s = time.perf_counter()
    if execution.ending != "cancelled" or not heard.is_set():
        raise RuntimeError(f"the run was not cancelled but {execution.ending}: {execution.message}")
    return ended_s - cancelled_s[0]


def _killed() -> float:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    began = time.perf_counter()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return time.perf_counter() - began
