"""Keep a share of every processor busy: `python -m benchmarks.studies.claims.claim_runs.load 0.25`, until it is ended.

One process a processor computes for that share of each fifth of a second and sleeps for the rest, in phases of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.studies.report import ROOT

PERIOD_S = 0.2


def busy(share: float, seconds: float = float("inf")) -> None:
    """Compute for a share of each period."""
    ends = time.monotonic() + seconds
    time.sleep(random.random() * PERIOD_S)
    while (began := time.monotonic()) < ends:
        while time.monotonic() - began < share * PERIOD_S:
            sum(range(500))
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))


@contextmanager
def loaded(share: float) -> Iterator[None]:
    """Keep every processor busy while the block lasts; a share of 0 starts nothing."""
    if share <= 0.0:
        yield
        return
    module = "benchmarks.studies.claims.claim_runs.load"
    program = subprocess.Popen([sys.executable, "-m", module, str(share)], cwd=ROOT)
    try:
        yield
    finally:
        program.terminate()
        program.wait()


def main(arguments: list[str]) -> None:
    """Start a process a processor; they end with this one."""
    share = float(arguments[0])
    if not 0.0 < share < 1.0:
        raise SystemExit(f"error: got a share of {share}, expected one between 0 and 1")
    for _ in range((os.cpu_count() or 1) - 1):
        multiprocessing.Process(target=busy, args=(share,), daemon=True).start()
    busy(share)


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the daemons are ended, too
    main(sys.argv[1:])
