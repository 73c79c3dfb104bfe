"""The cases of every cluster's study, whosever queue it is, and how one is done.

A study adds those of its own cluster, and the faults that only its daemons can have.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.studies.clusters.site import ClusterSite, as_root, facts_of
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row
from bridge.bus.views import RequestRef

HOSTILE = ("timeout", "asked", "double-fork", "setsid", "sigterm-ignored")


def on_site(site: ClusterSite, ways: Mapping[str, Callable[[Any, str], list[Row]]], case: str) -> None:
    """Do one case as this user and hand its rows over; say what the logs say where it fails.

    Args:
        ways: does a case by its first word, and gets the rest of it; those of every cluster are known.
    """
    kind, _, what = case.partition(" ")
    try:
        rows = {"whole": whole, "doctor": doctor, **ways}[kind](site, what)
    except BaseException:
        for log in (*site.folder.glob("*.log"), *site.folder.glob("state-*/runs/*/engine.log")):
            print(f"--- {log}\n{log.read_text()[-4000:]}", file=sys.stderr)
        raise
    finally:
        site.end()
    print(json.dumps({"rows": rows}), flush=True)


def whole(site: ClusterSite, _what: str) -> list[Row]:
    """Send four requests, one after the other."""
    site.serve()
    rows = []
    for number in range(4):
        sent_s = time.monotonic()
        ref = site.send("plain")
        site.end_of(ref)
        rows.append(site.row(ref, number=number, seconds=round(time.monotonic() - sent_s - 1.0, 2)))
    return rows


def hostile(site: ClusterSite, what: str) -> list[Row]:
    """Run a program that does not want to end, and have it end; the runner serves already."""
    ref = site.send(what)
    site.began(ref)
    if what != "timeout":
        site.until(
            lambda: b"up" in b"".join(chunk.data for chunk in site.requester().read_log(ref.id)), "no log", 900.0
        )
        site.requester().ask_cancel(ref.id, b"{}")
    return [site.row(ref, case=what)]


def doctor(site: ClusterSite, _what: str) -> list[Row]:
    """Return what doctor says of the engine and of the folder that its nodes share."""
    done = subprocess.run(
        site.command("doctor", "--json", "--bus", site.route), cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    checks = json.loads(done.stdout.replace(str(site.folder), "…"))
    return [check for check in checks if check["name"] in {"slurm", "ray", "shared folder"}]


def killed(site: ClusterSite, drawn: random.Random, within_s: float, jobs: Callable[[RequestRef], int]) -> Row:
    """Kill the runner at a drawn moment of a run, start it again, and return what became of the run.

    Args:
        drawn: draws the moments.
        within_s: how late the first of them may be.
        jobs: returns how many jobs the cluster has for the run.
    """
    process = site.serve()
    ref = site.send("slow")
    time.sleep(drawn.uniform(0.0, within_s))
    process.kill()
    process.wait()
    time.sleep(drawn.uniform(0.0, 3.0))
    before = (site.folder / "mini.log").stat().st_size
    process = site.serve()
    row = site.row(ref)
    process.terminate()
    process.wait()
    followed = "following it" in (site.folder / "mini.log").read_text()[before:]
    return {**row, "jobs": jobs(ref), "lost": row["reason"] != "gate_rejected", "followed": followed}


def supervisor_killed(site: ClusterSite) -> Row:
    """Kill the supervisor of a run that goes on."""
    ref = site.send("long")
    site.began(ref)
    as_root("kill", facts_of(site, ref)["pid"])
    return site.row(ref)
