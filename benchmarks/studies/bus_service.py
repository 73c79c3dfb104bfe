"""A runner's process over as many polls and runs as eight hours on a hosted remote bring: does it grow?

A poll every 15 s and twelve runs an hour are compressed: on a bus of this machine the same process polls several times
a second. What it holds is sampled after each run; the last quarter is compared with the second, as the first warms up.
"""

from __future__ import annotations

import contextlib
import os
import stat
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.studies.study import Row, Study
from tests.support.runner_site import Site

HOURS, RUNS_AN_HOUR, POLL_S = 8, 12, 15.0
RUNS = HOURS * RUNS_AN_HOUR
REST_S = HOURS * 3600.0 / POLL_S / RUNS / 10  # a pause in which a runner that polls ten times a second polls as often
RSS_GROWTH = 1.05
CASE = f"{RUNS} runs and the polls of {HOURS} h, one process"


def run(_case: str) -> list[Row]:
    """Send runs one after the other and sample the runner's process.

    Raises:
        RuntimeError: memory, descriptors or threads of the process grew, or a run has no result.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        Path(name).chmod(0o755)  # a root runner's programs run as another user
        row = served(Site(Path(name)), RUNS, REST_S)
    early, late = row["second quarter"], row["last quarter"]
    if late["rss bytes"] > RSS_GROWTH * early["rss bytes"] or any(
        late[what] > early[what] for what in ("descriptors", "threads")
    ):
        raise RuntimeError(f"{row}")
    return [row]


def served(site: Site, runs: int, rest_s: float) -> Row:
    """Return what one runner held over so many runs, each followed by a rest."""
    site.create_bus()
    began_s, samples = time.monotonic(), []
    runner = site.start("serve", "--bus", site.route)
    try:
        for _ in range(runs):
            site.ended(site.ask())
            time.sleep(rest_s)
            samples.append(sample(psutil.Process(runner.pid), site.folder / "state-mini"))
    finally:
        runner.terminate()
        runner.wait(timeout=120)
    quarter = max(1, runs // 4)
    return {
        "runs": runs,
        "seconds": round(time.monotonic() - began_s, 1),
        "begun": len(site.starts()),
        "second quarter": middle(samples[quarter : 2 * quarter]),
        "last quarter": middle(samples[-quarter:]),
    }


def sample(process: psutil.Process, state: Path) -> dict[str, int]:
    """Return what a process holds now, and its state folder: its files, their bytes, and the disk they take."""
    files = list(_files(state))
    with process.oneshot():
        return {
            "rss bytes": process.memory_info().rss,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "state bytes": sum(one.st_size for one in files),
            "state disk bytes": sum(512 * one.st_blocks for one in files),  # st_blocks: of 512 bytes, inode(7)
            "state files": len(files),
        }


def _files(folder: Path) -> Iterator[os.stat_result]:
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it may be replaced meanwhile
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                yield found


def middle(samples: Sequence[dict[str, int]]) -> dict[str, float]:
    """Return the median of each thing that was sampled."""
    return {what: statistics.median(one[what] for one in samples) for what in samples[0]}


STUDY = Study("service", "Does a runner grow over the polls and runs of eight hours?", lambda: [CASE], run)
