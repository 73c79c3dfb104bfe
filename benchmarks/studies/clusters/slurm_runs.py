"""Runs on a real Slurm over a git remote: whole, hostile, many, of killed runners, and with faults around them.

Each case is a cluster of its own on this machine, whose daemons root starts; runner and jobs are a user without rights.
What is measured are counts and endings; the machine is anybody's, so times are upper bounds.
"""

from __future__ import annotations

import contextlib
import pwd
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.studies.clusters.cases import HOSTILE, hostile, killed, on_site, supervisor_killed
from benchmarks.studies.clusters.requests import labelled, sweep
from benchmarks.studies.clusters.site import USER, ClusterSite, as_root, as_user, facts_of, folders_for_user
from benchmarks.studies.clusters.slurm_cluster import cluster
from benchmarks.studies.study import Row, Study

MANY, KILLS = 200, 20
UNLIKE = ("sweep", "labelled slurm")  # cases whose nodes are told apart by name and class
FAULTS = (
    "controller-restarted", "controller-away-at-submit", "node-killed", "supervisor-killed", "scancel-queued",
    "scancel-running", "requeued", "no-node-has-it", "longest-wait", "cancelled-while-queued",
    "preempted", "disk-full", "ten-minutes-queued",
)  # fmt: skip
NEVER = {
    "wall-time": "",
    "dependency": 'sbatch = ["--dependency=afterok:1"]',
    "features-gone": "",
    "account": 'partition = "closed"',
    "group": 'partition = "others"',
    "partition": 'partition = "nowhere"',
}
"""Reasons that no waiting changes, with what [executor] says to have Slurm give each.

More processors or cards than any node has are none: Slurm gives the same reason while nodes are down.
"""
TYPED = """[executor.jobs.small]
partition = "small"
gres = "gpu:small:1"
[executor.jobs.large]
partition = "large"
gres = "gpu:large:1"
"""


@dataclass
class SlurmSite(ClusterSite):
    """One whose runs go to Slurm, or stay here.

    Attributes:
        jobs: tables of the policy that say what labels mean for a job.
    """

    engine: str = "slurm"
    options: str = 'partition = "kakeya"'
    jobs: str = ""

    def policy(self, name: str = "mini") -> Path:
        """Write the policy, the tables of labels behind it."""
        path = super().policy(name)
        path.write_text(path.read_text() + self.jobs)
        return path

    def squeue(self) -> list[list[str]]:
        """Return number, state and reason of all jobs."""
        done = subprocess.run(
            ["squeue", "-h", "--states=all", "-o", "%i|%T|%r"], capture_output=True, text=True, check=False, timeout=60
        )
        return [line.split("|") for line in done.stdout.splitlines()]

    def state(self, job: str) -> str:
        """Return a job's state, empty where Slurm knows none."""
        return next((state for number, state, _ in self.squeue() if number == job), "")


def cases() -> Sequence[str]:
    """Return all cases."""
    return [
        "doctor", "whole local", "whole slurm",
        *(f"hostile {name}" for name in HOSTILE), *(f"fault {name}" for name in FAULTS),
        *(f"never {name}" for name in NEVER), "typed", "doctor typed",
        *(f"kill {number}" for number in range(KILLS)), "spread", "sweep", "labelled local", "labelled slurm", "many",
    ]  # fmt: skip


def run(case: str) -> list[Row]:
    """Do one case, as a user without rights, beside a cluster that root takes up and down.

    Raises:
        RuntimeError: this machine has no Slurm, or the case failed.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-slurm-") as name:
        folder = Path(name)
        folders_for_user(folder)
        with ExitStack() as stack:
            made = stack.enter_context(cluster(folder / "cluster", unlike=case in UNLIKE))
            orders = {"stop": made.stop, "controller": made.controller, "node": made.node, "call": made.call}
            if case == "fault disk-full":
                stack.enter_context(small_disk(folder / "site" / "state-mini", orders))
            return as_user("benchmarks.studies.clusters.slurm_runs", case, folder, made.environment(), orders)


@contextmanager
def small_disk(place: Path, orders: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Make a folder of the user's a disk of its own, with orders to fill and to empty it."""
    user, rest = pwd.getpwnam(USER), place / "rest"
    place.mkdir()
    options = f"size=256m,mode=700,uid={user.pw_uid},gid={user.pw_gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)

    def fill() -> None:
        with contextlib.suppress(OSError), rest.open("wb") as file:
            while True:
                file.write(b"." * (1 << 20))

    try:
        yield orders.update({"fill": fill, "empty": rest.unlink})
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def main(case: str, folder: Path) -> None:
    """Do one case as this user and hand its rows over."""
    what = case.partition(" ")[2]
    changes: dict[str, Any] = {"engine": "local"} if what == "local" else {}
    if what == "longest-wait":
        changes["longest_wait_s"] = 5.0
    if case.startswith("never "):
        common = "" if what in {"account", "group", "partition"} else 'partition = "kakeya"\n'
        changes["options"] = common + NEVER[what]
    if "typed" in case:
        changes["jobs"] = TYPED
    ways: dict[str, Callable[[Any, str], list[Row]]] = {
        "hostile": _hostile, "fault": _fault, "kill": _killed, "never": _never, "typed": _typed, "spread": _spread,
        "many": _many, "sweep": sweep,
        "labelled": labelled,
    }  # fmt: skip
    on_site(SlurmSite(folder, **changes), ways, case)


def _hostile(site: SlurmSite, what: str) -> list[Row]:
    site.serve()
    return hostile(site, what)


def _killed(site: SlurmSite, what: str) -> list[Row]:
    return [killed(site, random.Random(int(what)), 12.0, lambda _ref: len([job for job in site.squeue() if job[0]]))]


def _spread(site: SlurmSite, _what: str) -> list[Row]:
    """Send a dozen requests to nodes by label, and a dozen to any."""
    site.serve()
    refs = [site.send("plain", *labels) for labels in (("odd",), ("even",), ()) for _ in range(8)]
    jobs = {ref.id: site.job(ref) for ref in refs[:1]}
    rows = [site.row(ref, wanted=("odd", "even", "any")[number // 8]) for number, ref in enumerate(refs)]
    for row, (job, node) in zip(rows, sorted(_nodes().items(), key=lambda pair: int(pair[0])), strict=False):
        row["job"], row["ran_on"] = job, node
    assert jobs
    return rows


def _nodes() -> dict[str, str]:
    """Return on which node each job ran."""
    done = subprocess.run(["squeue", "-h", "--states=all", "-o", "%i|%N"], capture_output=True, text=True, check=False,
                          timeout=60)  # fmt: skip
    return dict(line.split("|") for line in done.stdout.splitlines())


def _many(site: SlurmSite, _what: str) -> list[Row]:
    """Send many requests, count what runs at the same time, and in which order they began."""
    refs = [site.send("plain") for _ in range(MANY)]
    most, shown = 0, set()
    site.serve()
    while not all(site.claims.end(ref.id) for ref in refs):
        states = [state for _, state, _ in site.squeue()]
        most = max(most, sum(state in {"RUNNING", "COMPLETING"} for state in states))
        shown |= set(states)
        time.sleep(1.0)
    order = [ref.id for ref in refs]
    began = [order.index(run_id) for run_id in dict.fromkeys(site.heard)]
    ends = [site.ended(ref).reason for ref in refs]
    left = sum(as_root("left", run_id) for run_id in order)
    late = max((place - sent for place, sent in enumerate(began)), default=0)
    return [{
        "sent": MANY, "ended": len(ends), "reasons": {reason: ends.count(reason) for reason in set(ends)},
        "started_once": sum(site.heard.count(run_id) == 1 for run_id in order), "most_at_once": most,
        "slots": site.slots, "most_places_out_of_order": late, "survivors": left,
    }]  # fmt: skip


def _fault(site: SlurmSite, what: str) -> list[Row]:
    site.serve()
    return [{**_FAULTS[what](site), "case": what}]


def _controller_restarted(site: SlurmSite) -> Row:
    ref = site.send("slow")
    site.began(ref)
    as_root("stop", "slurmctld.pid")
    time.sleep(10.0)
    as_root("controller")
    return site.row(ref)


def _controller_away(site: SlurmSite) -> Row:
    as_root("stop", "slurmctld.pid")
    ref = site.send("plain")
    row = site.row(ref)
    as_root("controller")
    return row


def _node_killed(site: SlurmSite) -> Row:
    """Take a node away: its daemon and what it runs."""
    ref = site.send("long", "odd")
    site.began(ref)
    as_root("stop", "slurmd-n1.pid")
    as_root("kill", facts_of(site, ref)["pid"])
    return site.row(ref)


def _scancel_queued(site: SlurmSite) -> Row:
    as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    ref = site.send("plain")
    as_root("call", "scancel", site.job(ref))
    return site.row(ref)


def _scancel_running(site: SlurmSite) -> Row:
    ref = site.send("long")
    site.began(ref)
    as_root("call", "scancel", site.job(ref))
    return site.row(ref)


def _requeued(site: SlurmSite) -> Row:
    """Have an operator requeue the job, which was submitted as one that is not; then cancel what goes on."""
    ref = site.send("long")
    site.began(ref)
    job = site.job(ref)
    answer = as_root("call", "scontrol", "requeue", job)
    time.sleep(10.0)
    state = site.state(job)
    if state == "RUNNING":
        site.requester().ask_cancel(ref.id, b"{}")
    return site.row(ref, state=state, said=answer)


def _no_node(site: SlurmSite) -> Row:
    return site.row(site.send("plain", "nowhere"))


def _longest_wait(site: SlurmSite) -> Row:
    as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    return site.row(site.send("plain"))


def _never(site: SlurmSite, what: str) -> list[Row]:
    """Send a request that Slurm never begins, and say how long it took to end with the reason."""
    site.serve()
    if what == "wall-time":
        as_root("call", "scontrol", "update", "PartitionName=kakeya", "MaxTime=1")
    if what == "features-gone":
        as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    if what == "dependency":  # job 1, which the run's is to come after, fails
        as_root("call", "sbatch", "--partition=kakeya", "--output=/dev/null", "--wrap=false")
        site.until(lambda: site.state("1") == "FAILED", "the job to come after never failed", 60.0)
    sent_s = time.monotonic()
    ref = site.send("plain", *(("odd",) if what == "features-gone" else ()))
    if what == "features-gone":  # an admin takes the feature away while the job waits
        site.job(ref)
        for node in ("n1", "n2"):
            as_root("call", "scontrol", "update", f"NodeName={node}", "AvailableFeatures=none", "ActiveFeatures=none")
        as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=UP")
        sent_s = time.monotonic()
    claim = site.end_of(ref)
    took_s = time.monotonic() - sent_s
    return [{
        "case": what, "reason": claim.reason, "message": claim.message, "seconds": round(took_s, 1),
        "starts": site.heard.count(ref.id), "survivors": as_root("left", ref.id),
        "waits": [words for words in site.squeue() if words[1] == "PENDING"],
    }]  # fmt: skip


def _typed(site: SlurmSite, _what: str) -> list[Row]:
    """Send requests for two kinds of card in two partitions to one runner."""
    site.serve()
    sent = []
    for label in ("small", "large") * 3:
        ref = site.send("plain", label)
        sent.append((label, ref, site.job(ref)))  # its folder goes with its end
    rows = [site.row(ref, wanted=label, job=job) for label, ref, job in sent]
    given = ["squeue", "-h", "--states=all", "-o", "%i|%P|%N|%b"]
    listed = subprocess.run(given, capture_output=True, text=True, check=False, timeout=60).stdout.splitlines()
    places = {line.split("|")[0]: line.split("|")[1:] for line in listed}
    return [{**row, "placed": places[str(row["job"])]} for row in rows]


def _ten_minutes_queued(site: SlurmSite) -> Row:
    """Count what a run that waits for ten minutes asks of Slurm's controller, its submission included."""
    as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    before = _requests()
    ref = site.send("plain")
    site.job(ref)
    time.sleep(600.0)
    sent = {name: count - before.get(name, 0) for name, count in _requests().items() if count > before.get(name, 0)}
    site.requester().ask_cancel(ref.id, b"{}")
    return site.row(ref, requests=sent, total=sum(sent.values()))


def _requests() -> dict[str, int]:
    """Return how many requests of each kind this user has sent to the controller; sdiag's own are left out."""
    text = str(as_root("call", "sdiag")).partition("statistics by message type")[2].partition("statistics by user")[0]
    counts = re.findall(r"(REQUEST_\w+)[^\n]*?count:(\d+)", text)
    not_ours = ("STATS", "NODE_REGISTRATION", "PING")
    return {name: int(count) for name, count in counts if not any(word in name for word in not_ours)}


def _cancelled_queued(site: SlurmSite) -> Row:
    """Cancel what waits, once its place in the queue was shown."""
    queued = [site.send("long") for _ in range(4)]
    for ref in queued:
        site.began(ref)
    as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    site.requester().ask_cancel(queued[0].id, b"{}")
    site.end_of(queued[0])
    ref = site.send("plain")
    job = site.job(ref)
    shown = site.shown_place(ref)
    site.requester().ask_cancel(ref.id, b"{}")
    row = site.row(ref, shown=shown, job=site.state(job))
    for other in queued[1:]:
        site.requester().ask_cancel(other.id, b"{}")
        site.end_of(other)
    return row


def _preempted(site: SlurmSite) -> Row:
    """Have a job of a partition that comes first take both nodes."""
    ref = site.send("long")
    site.began(ref)
    answer = as_root(
        "call", "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=sleep 5", "--output=/dev/null"
    )
    row = site.row(ref, said=answer)
    return {**row, "state": site.state(site.job(ref)) if row["reason"] is None else "", "jobs": len(site.squeue())}


def _disk_full(site: SlurmSite) -> Row:
    """Fill what runner and nodes share while a run goes on, give it back after a while, and do as a service does."""
    ref = site.send("long")
    site.began(ref)
    as_root("fill")
    time.sleep(20.0)
    while_full = site.claims.end(ref.id)
    as_root("empty")
    gone = site.runners[-1].poll() is not None
    if gone:
        site.serve()
    row = site.row(ref, ended_while_full=bool(while_full), runner_ended=gone)
    after = site.send("plain")
    return {**row, "after": site.row(after)["reason"]}


_FAULTS: dict[str, Callable[[SlurmSite], Row]] = {
    "controller-restarted": _controller_restarted,
    "controller-away-at-submit": _controller_away,
    "node-killed": _node_killed,
    "supervisor-killed": supervisor_killed,
    "scancel-queued": _scancel_queued,
    "scancel-running": _scancel_running,
    "requeued": _requeued,
    "no-node-has-it": _no_node,
    "longest-wait": _longest_wait,
    "cancelled-while-queued": _cancelled_queued,
    "preempted": _preempted,
    "disk-full": _disk_full,
    "ten-minutes-queued": _ten_minutes_queued,
}

STUDY = Study("slurm-runs", "Does a run on a real Slurm end as at home, whatever happens to runner, node or queue?",
              cases, run, "an hour")  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
