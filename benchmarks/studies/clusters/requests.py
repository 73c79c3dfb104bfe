"""What people ask of a cluster as they would at home: a sweep, a workload and a preset, by the requester's commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.clusters.site import ClusterSite
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row

WORKLOAD: Final = "line-fit"
RATES: Final = tuple(round(0.02 * step, 2) for step in range(1, 13))
REPEATS: Final = 2
_PATIENCE_S: Final = 3600.0
ASKED: Final = {WORKLOAD: "odd", "k3-fused-allmlx-code": "even"}
"""Presets with the label of the node that is to run them."""


def sweep(site: ClusterSite, _what: str) -> list[Row]:
    """Send a sweep of 24 requests, and compare two of its runs that other classes of hosts measured."""
    _offer(site)
    values = ",".join(map(str, RATES))
    _, swept = _asked(site, "run", WORKLOAD, "-p", f"lr={values}", "--repeat", str(REPEATS), "--wait")
    runs, differing = swept["data"]["runs"], swept["data"]["differences"]
    columns = ("params", "repeat", "node", "host_class", "reason", "verdict")
    classes = {row["id"]: row["host_class"] for row in runs}
    across = sum(classes[difference["a"]] != classes[difference["b"]] for difference in differing)
    return [
        *({name: row[name] for name in columns} for row in runs),
        {"sweep": len(runs), "differences": len(differing), "differences_across_classes": across},
        *_compared(site, classes),
    ]


def _compared(site: ClusterSite, classes: Mapping[str, str]) -> list[Row]:
    """Return what `compare` says of two runs of other classes."""
    first: dict[str, str] = {}
    for run_id, host in classes.items():
        first.setdefault(host, run_id)
    if len(first) < 2:
        return []
    a, b, *_ = first.values()
    code, document = _asked(site, "compare", a, b)
    differences = document["data"]["differences"]
    why = sorted({text for difference in differences for text in difference["why"]})
    return [
        {
            "compare": sorted(first),
            "exit_code": code,
            "citable": any(difference["citable"] for difference in differences),
            "why": why,
        }
    ]


def labelled(site: ClusterSite, _what: str) -> list[Row]:
    """Have a workload and a preset run by label, and return how they were judged."""
    _offer(site)
    rows = []
    for preset, label in ASKED.items():
        code, document = _asked(site, "run", preset, "--runner", f"{label},", "--wait")
        _, verified = _asked(site, "verify", document["id"])
        rows.append({
            "preset": preset, "label": label, "exit_code": code, "reason": document["outcome"]["reason"],
            "claims": sorted(f"{claim['metric']}: {claim['decision']}" for claim in document["claims"]),
            "answer": verified["data"]["answer"],
        })  # fmt: skip
    return rows


def _offer(site: ClusterSite) -> None:
    """Let the runner offer the workload, serve, and give the requester a clone that knows the bus.

    Raises:
        RuntimeError: a step failed.
    """
    site.interpreter = Path(sys.executable)  # no script: a workload's command is looked into
    shutil.copytree(ROOT / "examples" / WORKLOAD, site.folder / WORKLOAD)
    allowed = subprocess.run(
        site.command("workload", "allow", str(site.folder / WORKLOAD)), cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if allowed.returncode != 0:
        raise RuntimeError(allowed.stderr)
    site.serve()
    clone = site.folder / "clone"
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    _asked(site, "init", "--bus", site.route)


def _asked(site: ClusterSite, *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a requester's command and its document.

    Raises:
        RuntimeError: it printed none.
    """
    command = [sys.executable, "-m", "bridge.cli.mac.main", *words, "--json"]
    done = subprocess.run(
        command, cwd=site.folder / "clone", env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=False, timeout=_PATIENCE_S,
    )  # fmt: skip
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}") from None
