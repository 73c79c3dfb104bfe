"""What a run costs beside the cluster's own `srun true`, and beside the same run at home: in turns, on one cluster.

Times are of a program that does nothing, from the request to its end on the bus. The first run of a node tries the
sandbox and is a row of its own. Meant for a machine that does nothing else.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.studies.cluster_cases import on_site
from benchmarks.studies.cluster_site import ClusterSite, as_user, folders_for_user
from benchmarks.studies.slurm_cluster import cluster
from benchmarks.studies.slurm_runs import SlurmSite
from benchmarks.studies.study import Row, Study

BLOCKS, TURNS = 3, 10
MODULE = "benchmarks.studies.slurm_overhead"


def cases() -> Sequence[str]:
    """Return the blocks."""
    return [f"block {number}" for number in range(BLOCKS)]


def run(case: str) -> list[Row]:
    """Return the seconds of each turn of `srun true`, of a run at home and of one on a node, and what that adds.

    Raises:
        RuntimeError: this machine has no Slurm, or a run did not end.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-slurm-") as name:
        folder = Path(name)
        folders_for_user(folder)
        with cluster(folder / "cluster", nodes=1) as made:
            return as_user(MODULE, case, folder, made.environment(), {})


def main(case: str, folder: Path) -> None:
    """Do one block as this user and hand its rows over."""
    for part in ("home", "nodes"):
        (folder / part).mkdir()
    there = SlurmSite(folder / "nodes")
    here = ClusterSite(folder / "home")
    try:
        on_site(there, {"block": lambda _site, number: _block(here, there, number)}, case)
    finally:
        here.end()


def _block(here: ClusterSite, there: ClusterSite, number: str) -> list[Row]:
    order = random.Random(number)
    first = {}
    for name, site in {"home": here, "node": there}.items():
        site.serve()
        first[name] = _request(site)
        _request(site)  # warm: what is imported and listed once
    _srun()
    arms: dict[str, Callable[[], float]] = {
        "srun true": _srun, "home": lambda: _request(here), "node": lambda: _request(there)
    }  # fmt: skip
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(TURNS):
        for arm in order.sample(list(arms), len(arms)):
            seconds[arm].append(arms[arm]())
    pairs = list(zip(seconds["node"], seconds["srun true"], seconds["home"], strict=True))
    adds = {
        "node over srun true": median(node - srun for node, srun, _ in pairs),
        "node over home": median(node - home for node, _, home in pairs),
        "node over home and srun true": median(node - home - srun for node, srun, home in pairs),
    }
    return [
        *({"arm": arm, "seconds": [round(one, 3) for one in found]} for arm, found in seconds.items()),
        *({"first": arm, "seconds": round(value, 3)} for arm, value in first.items()),
        *({"adds": what, "median_s": round(value, 3)} for what, value in adds.items()),
    ]


def _srun() -> float:
    began = time.monotonic()
    subprocess.run(["srun", "--partition=kakeya", "--ntasks=1", "--quiet", "true"], check=True, timeout=600)
    return time.monotonic() - began


def _request(site: ClusterSite) -> float:
    began = time.monotonic()
    ref = site.send("plain")
    while not site.claims.end(ref.id):
        time.sleep(0.01)
    return time.monotonic() - began


STUDY = Study("slurm-overhead", "What does a run on a node cost beside the engine's own srun true?", cases, run)

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
