"""What the bridge adds to a program's own time when both sides run, beside raw git doing the same steps.

A real `kakeya-runner serve` process on a loopback remote, a real `kakeya-mac run --wait` in this process, a program
that does nothing; overhead is the command's time less the seconds the program ran. Target: p50 within 0.6 s.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.quick.bus_overhead import floor
from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import Timing, interleave
from bridge.cli.mac.program import Surroundings, main
from tests.support.runner_site import CLOCK, Site


def measure(repeats: int = 15) -> list[Figure]:
    """Return medians of the same interleaved run."""
    folder = Path(tempfile.mkdtemp(prefix="kakeya-bench-"))
    site = Site(folder)
    try:
        site.create_bus()
        site.start("serve", "--bus", site.route)
        site.until(lambda: site.requester().read_beacons(), "the runner does not start")
        spent: list[float] = []
        timings = interleave({"floor": floor(folder / "floor"), "run": lambda: spent.append(run_once(site))}, repeats)
    finally:
        site.end()
        shutil.rmtree(folder, ignore_errors=True)
    added = Timing(tuple(spent[-repeats:]))  # the first ones were the warm-up
    beside = timings["floor"]
    return [
        Figure("raw git floor of the same steps", round(beside.median_s * 1e3, 1), "ms"),
        Figure("run --wait, whole command", round(timings["run"].median_s * 1e3, 1), "ms"),
        Figure("overhead p50", round(added.median_s * 1e3, 1), "ms", 600.0),
        Figure("overhead p90", round(added.p90_s * 1e3, 1), "ms"),
        Figure("overhead to floor", round(added.median_s / beside.median_s, 2), "ratio"),
    ]


def run_once(site: Site) -> float:
    """Send one run, wait for it, and return the seconds that were not the program's."""
    out, err = io.StringIO(), io.StringIO()
    own = {"KAKEYA_DATA_DIR": str(site.folder / "data"), "KAKEYA_CONFIG_DIR": str(site.folder / "config")}
    around = Surroundings(out, err, {**own, "PATH": os.environ["PATH"]}, site.folder, CLOCK)
    began = time.perf_counter()
    main(["run", "count", "--bus", site.route, "--new", "--wait", "--json"], around)
    elapsed_s = time.perf_counter() - began
    document = json.loads(out.getvalue())
    if not document["terminal"]:
        raise RuntimeError(f"the run did not end: {document['outcome']}\n{err.getvalue()}")
    return elapsed_s - float(document["times_s"]["running"])
