"""Runs on a real Ray over a git remote: whole, hostile, of killed runners, and with faults around them.

Each case is a cluster of two nodes on this machine. Ray, runner and jobs are one user without rights. What is measured
are counts and endings; the machine is anybody's, so times are upper bounds.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.studies.clusters.cases import HOSTILE, hostile, killed, on_site, supervisor_killed
from benchmarks.studies.clusters.ray_cluster import ray_cluster
from benchmarks.studies.clusters.site import ClusterSite, as_root, as_user, facts_of, folders_for_user
from benchmarks.studies.study import Row, Study
from bridge.bus.views import RequestRef

KILLS, AT_ONCE = 20, 5
FAULTS = (
    "dashboard-stop", "supervisor-killed", "job-process-killed", "node-killed", "no-node-has-it",
    "cancelled-while-queued", "away-at-submit", "head-restarted",
)  # fmt: skip


@dataclass
class RaySite(ClusterSite):
    """One whose runs go to Ray, or stay here."""

    engine: str = "ray"

    def jobs(self) -> dict[str, str]:
        """Return the state of each of Ray's jobs."""
        return {job["submission_id"]: job["status"] for job in as_root("jobs") if job["submission_id"]}


def cases() -> Sequence[str]:
    """Return all cases."""
    kills = [f"kills {number}" for number in range(KILLS // AT_ONCE)]
    return ["doctor", "whole local", "whole ray", "hostile", *(f"fault {name}" for name in FAULTS), *kills, "spread"]


def run(case: str) -> list[Row]:
    """Do one case, as a user without rights, beside a cluster that is taken up and down for it.

    Raises:
        RuntimeError: this machine has no Ray, or the case failed.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-ray-") as name, ExitStack() as stack:
        folder = Path(name)
        folders_for_user(folder)
        if case == "whole local":
            return as_user(MODULE, case, folder, {}, {})
        made = stack.enter_context(ray_cluster(folder))
        given = {"KAKEYA_STUDY_RAY": made.address, "KAKEYA_STUDY_TOKEN": made.token}
        orders = {"jobs": made.jobs, "stop-job": made.stop_job, "stop": made.stop, "start": made.start}
        return as_user(MODULE, case, folder, given, orders)


def main(case: str, folder: Path) -> None:
    """Do one case as this user and hand its rows over."""
    what = case.partition(" ")[2]
    changes: dict[str, Any] = {"engine": "local"} if what == "local" else {"options": _options(folder, os.environ)}
    if what == "no-node-has-it":
        changes["longest_wait_s"] = 10.0
    on_site(
        RaySite(folder, **changes), {"hostile": _hostile, "fault": _fault, "kills": _killed, "spread": _spread}, case
    )


def _options(folder: Path, environment: Mapping[str, str]) -> str:
    token = folder / "ray.token"
    token.write_text(environment["KAKEYA_STUDY_TOKEN"])
    token.chmod(0o600)
    return f'address = "{environment["KAKEYA_STUDY_RAY"]}"\ntoken_file = "{token}"'


def _hostile(site: RaySite, _what: str) -> list[Row]:
    site.serve()
    rows = [row for what in HOSTILE for row in hostile(site, what)]
    states = site.jobs()
    return [{**row, "jobs": len(states), "words": sorted(states.values())} for row in rows]


def _killed(site: RaySite, what: str) -> list[Row]:
    def jobs(ref: RequestRef) -> int:
        return sum(ref.id in name for name in site.jobs())

    return [killed(site, random.Random(f"{what} {number}"), 15.0, jobs) for number in range(AT_ONCE)]


def _spread(site: RaySite, _what: str) -> list[Row]:
    """Send eight requests to each node by label."""
    site.serve()
    refs = [site.send("plain", label) for label in ("odd", "even") for _ in range(8)]
    rows = [site.row(ref, wanted=("odd", "even")[number // 8]) for number, ref in enumerate(refs)]
    nodes = {job["submission_id"]: job["driver_node_id"] for job in as_root("jobs")}
    return [{**row, "ran_on": _of(nodes, ref.id)[:8]} for ref, row in zip(refs, rows, strict=True)]


def _of(jobs: dict[str, Any], run_id: str) -> str:
    return str(next((value for name, value in jobs.items() if run_id in str(name)), ""))


def _fault(site: RaySite, what: str) -> list[Row]:
    site.serve()
    return [{**_FAULTS[what](site), "case": what}]


def _dashboard_stop(site: RaySite) -> Row:
    ref = site.send("long")
    site.began(ref)
    answer = as_root("stop-job", site.job(ref))
    return site.row(ref, said=answer, word=_of(site.jobs(), ref.id))


def _job_process_killed(site: RaySite) -> Row:
    """Kill the process that Ray started for the job, which waits for the supervisor."""
    ref = site.send("long")
    site.began(ref)
    as_root("kill", as_root("waiting", ref.id, facts_of(site, ref)["pid"]))
    return site.row(ref, word=_of(site.jobs(), ref.id))


def _node_killed(site: RaySite) -> Row:
    """Take a node away: Ray's daemons there, and what these started."""
    ref = site.send("long", "even")
    site.began(ref)
    as_root("stop", "even")
    return site.row(ref)


def _no_node(site: RaySite) -> Row:
    ref = site.send("plain", "nowhere")
    return site.row(ref, word=_of(site.jobs(), ref.id))


def _cancelled_queued(site: RaySite) -> Row:
    """Cancel what waits, once its place in the queue was shown."""
    queued = [site.send("long", "even") for _ in range(2)]
    for ref in queued:
        site.began(ref)
    ref = site.send("plain", "even")
    shown = site.shown_place(ref)
    site.requester().ask_cancel(ref.id, b"{}")
    site.end_of(ref)
    for other in queued:
        site.requester().ask_cancel(other.id, b"{}")
        site.end_of(other)
    site.until(lambda: _of(site.jobs(), ref.id) not in {"PENDING", "RUNNING"}, "its job waits for ever", 900.0)
    return site.row(ref, shown=shown, word=_of(site.jobs(), ref.id))


def _away(site: RaySite) -> Row:
    as_root("stop", "odd")
    return site.row(site.send("plain"))


def _head_restarted(site: RaySite) -> Row:
    """Take the head away while a run goes on, and bring another up: it knows of no job."""
    ref = site.send("long", "odd")
    site.began(ref)
    as_root("stop", "odd")
    as_root("start", "odd")
    row = site.row(ref)
    after = site.send("plain", "odd")
    return {**row, "after": site.row(after)["reason"]}


_FAULTS: dict[str, Callable[[RaySite], Row]] = {
    "dashboard-stop": _dashboard_stop,
    "supervisor-killed": supervisor_killed,
    "job-process-killed": _job_process_killed,
    "node-killed": _node_killed,
    "no-node-has-it": _no_node,
    "cancelled-while-queued": _cancelled_queued,
    "away-at-submit": _away,
    "head-restarted": _head_restarted,
}
MODULE = "benchmarks.studies.clusters.ray_runs"
STUDY = Study(
    "ray-runs",
    "Does a run on a real Ray end as at home, whatever happens around it?",
    cases,
    run,
    "a quarter of an hour",
)

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
