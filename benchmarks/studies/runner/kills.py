"""KILL of a runner at every journal point and at random moments, with one and with two runners on a real bus.

Each case is a request of its own: a runner is killed, started again, and the run's end, its starts and its result are
counted. Downtimes are below the lease except in the cases that say otherwise.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.studies.study import Entry, Row, Study
from bridge.bus.views import RequestRef
from tests.support.runner_site import ROOT, Site

EVENTS = (
    "fetched", "claimed", "prepared", "started", "exited", "judged", "result_built", "terminal", "copied",
)  # fmt: skip
MOMENTS = 100
AWAY = 10
SUPERVISORS = 20
KINDS = {
    "runner away for less than its lease": ("point", "moment"),
    "runner away for longer": ("away",),
    "supervisor": ("supervisor",),
}
WORK = "sleep 1; echo went on"
LEASE_S = 60.0
SHORT_LEASE_S = 6.0
WITHIN_S = 6.0


def cases() -> Sequence[str]:
    """Return all cases: points, moments, absences beyond the lease, killed supervisors."""
    points = [
        f"point {event} {when} {runners}" for runners in (1, 2) for event in EVENTS for when in ("before", "after")
    ]
    moments = [f"moment {number} {1 + number % 2}" for number in range(MOMENTS)]
    away = [f"away {number} 2" for number in range(AWAY)]
    return [*points, *moments, *away, *(f"supervisor {number} 1" for number in range(SUPERVISORS))]


def run(case: str) -> list[Row]:
    """Measure one case."""
    kind, *words = case.split()
    runners = int(words[-1])
    with _site(SHORT_LEASE_S if kind == "away" else LEASE_S) as site:
        match kind:
            case "point":
                ref = _at_point(site, words[0], words[1], runners)
            case "moment":
                ref = _at_moment(site, random.Random(int(words[0])), runners)
            case "away":
                ref = _away(site)
            case _:
                ref = _supervisor(site, random.Random(int(words[0])))
        return [_row(site, ref, kind)]


def _row(site: Site, ref: RequestRef, kind: str) -> Row:
    """Return what became of the run: its one end, whose result verifies, and how often its program began."""
    claim = site.ended(ref)
    time.sleep(1.0)  # whoever would end it again has the time to
    again = site.claim(ref)
    expected = {"away": "runner_lost", "supervisor": "infrastructure"}.get(kind, "gate_rejected")
    return {
        "reason": claim.reason,
        "lost": claim.reason != expected,
        "ended_twice": again != claim,
        "starts": site.starts().count(ref.id),
        "kept_late": sum(1 for state in site.folder.glob("state-*") for _ in (state / "late").glob(ref.id)),
        "left": _left(ref.id),
    }


def _at_point(site: Site, event: str, when: str, runners: int) -> RequestRef:
    """Let a runner die around one journal line, then start it again, beside another one if there are two."""
    ref = site.ask()
    orders = {
        "bus": site.route, "state": str(site.folder / "state-mini"), "policy": str(site.policy()),
        "event": event, "when": when,
    }  # fmt: skip
    file = site.folder / "scenario.json"
    file.write_text(json.dumps(orders))
    subprocess.run([sys.executable, "-m", "tests.support.crash", str(file)], cwd=ROOT, check=False, timeout=120)
    if runners == 2:
        _serve(site, "other")
        time.sleep(1.0)
    _serve(site, "mini")
    return ref


def _at_moment(site: Site, drawn: random.Random, runners: int) -> RequestRef:
    """Kill a serving runner some moment after a request was sent, and start it again a little later."""
    names = ("mini", "other")[:runners]
    processes = {name: _serve(site, name) for name in names}
    ref = site.ask()
    time.sleep(drawn.uniform(0.0, WITHIN_S))
    victim = drawn.choice(names)
    processes[victim].kill()
    processes[victim].wait()
    time.sleep(drawn.uniform(0.0, 3.0))
    _serve(site, victim)
    return ref


def _away(site: Site) -> RequestRef:
    """Kill a runner in the middle of a run and start it again when another one has ended the run."""
    site.set_work("sleep 25")
    process = _serve(site, "mini")
    ref = site.ask()
    site.until(site.starts, "it never started")
    process.kill()
    process.wait()
    _serve(site, "other")
    site.ended(ref)
    _serve(site, "mini")
    late = site.folder / "state-mini" / "late" / ref.id / "kept.json"
    site.until(lambda: late.exists() and not _left(ref.id), "it is still running")
    return ref


def _supervisor(site: Site, drawn: random.Random) -> RequestRef:
    """Kill the supervisor of a run that goes on."""
    site.set_work("sleep 25")
    _serve(site, "mini")
    ref = site.ask()
    site.until(site.starts, "it never started")
    time.sleep(drawn.uniform(0.0, 1.0))
    facts = json.loads((site.folder / "state-mini" / "runs" / ref.id / "lock").read_text())
    os.kill(facts["pid"], 9)
    return ref


def _serve(site: Site, name: str) -> subprocess.Popen[str]:
    log = site.folder / f"{name}.log"
    before = log.read_text().count("serves") if log.exists() else 0
    process = site.start("serve", "--bus", site.route, name=name)
    site.until(lambda: log.exists() and log.read_text().count("serves") > before, "it does not serve")
    return process


def _left(run_id: str) -> int:
    """Return how many processes carry the run's id in their environment."""
    needle = f"KAKEYA_RUN_ID={run_id}".encode()
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                count += needle in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
    return count


@contextmanager
def _site(lease_s: float) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        site = Site(Path(name), work=WORK, lease_s=lease_s)
        site.create_bus()
        try:
            yield site
        finally:
            site.end()


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return by what was killed how many runs were lost, repeated or ended twice, and how many processes were left."""
    lines = []
    for name, kinds in KINDS.items():
        rows = [row for entry in entries if entry["case"].split()[0] in kinds for row in entry["rows"]]
        if rows:
            lost, twice = (sum(bool(row[key]) for row in rows) for key in ("lost", "ended_twice"))
            repeated, left = sum(row["starts"] != 1 for row in rows), sum(row["left"] for row in rows)
            counts = f"{lost} lost, {repeated} repeated, {twice} ended twice, {left} processes left"
            lines.append(f"{name}: {counts} in {len(rows)} cases")
    return lines


STUDY = Study(
    "runner-kills",
    "Is a run lost or repeated when its runner or its supervisor is killed?",
    cases,
    run,
    "an hour and a half",
    summary,
)
