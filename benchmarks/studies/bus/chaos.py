"""Five clients, three runners as processes and sixty requests over real git, runners killed and stalled at random.

A run's program counts its starts on disk. Afterwards every request has one end whose result verifies, and its program
began once, or never where its runner was killed as it started. A case is a seed: it decides when requests are sent and
what happens to which runner.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.bus import open_bus
from bridge.bus.views import RequestRef
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.support.runner_site import CLOCK, Site

CLIENTS, RUNNERS, REQUESTS = 5, 3, 60
SEEDS = (1, 2, 3, 4, 5, 6)
SPREAD_S = 60.0
LIMIT_S = 900.0
LEASE_S = 60.0
WORK = "sleep 0.5"
PAUSE_S = (2.0, 6.0)  # between two things that happen to a runner
AWAY_S = (0.0, 4.0)  # how long it is gone or stopped, well below its lease


@dataclass(frozen=True)
class End:
    """How a request ended, and after how long."""

    reason: str
    wait_s: float


@dataclass
class Fleet:
    """The runners of one bus, by name, and what happened to them."""

    site: Site
    chance: random.Random
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)

    def serve(self, name: str) -> None:
        """Start a runner."""
        self.processes[name] = self.site.start("serve", "--bus", self.site.route, name=name)

    def disturb(self, done: threading.Event) -> None:
        """Kill or stall a runner now and then until the requests are done."""
        while not done.wait(self.chance.uniform(*PAUSE_S)):
            name, what = self.chance.choice(sorted(self.processes)), self.chance.choice(("kill", "stall"))
            process, away_s = self.processes[name], self.chance.uniform(*AWAY_S)
            self.happened[what] += 1
            if what == "kill":
                process.kill()
                process.wait()
                time.sleep(away_s)
                self.serve(name)
            else:
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(away_s)
                os.kill(process.pid, signal.SIGCONT)


def run(case: str) -> list[Row]:
    """Send sixty requests and disturb the runners until all have ended.

    Raises:
        RuntimeError: a request was lost, or its program began twice.
    """
    chance = random.Random(int(case.rpartition(" ")[2]))
    with _site() as site:
        fleet = Fleet(site, chance)
        for number in range(RUNNERS):
            fleet.serve(f"runner-{number}")
        began_s, done = time.monotonic(), threading.Event()
        ends: dict[str, End] = {}
        plans = [sorted(chance.uniform(0.0, SPREAD_S) for _ in range(REQUESTS // CLIENTS)) for _ in range(CLIENTS)]
        clients = [
            threading.Thread(target=_client, args=(site, number, plan, ends)) for number, plan in enumerate(plans)
        ]
        disturber = threading.Thread(target=fleet.disturb, args=(done,))
        for thread in (*clients, disturber):
            thread.start()
        for thread in clients:
            thread.join()
        done.set()
        disturber.join()
        starts = Counter(site.starts())
        row = _row(ends, starts, fleet, time.monotonic() - began_s)
    if row["lost"] or row["begun twice"] or row["begun once"] + row["ended before they began"] != REQUESTS:
        raise RuntimeError(f"{row}")
    return [row]


def _row(ends: dict[str, End], starts: Counter[str], fleet: Fleet, seconds: float) -> Row:
    ordered = sorted(end.wait_s for end in ends.values())
    never = Counter(end.reason for run_id, end in ends.items() if run_id not in starts)
    return {
        "requests": REQUESTS,
        "lost": REQUESTS - len(ends),
        "ended as": dict(sorted(Counter(end.reason for end in ends.values()).items())),
        "ended before they began": never["runner_lost"] + never["interrupted"],
        "begun twice": sum(count > 1 for count in starts.values()),
        "begun once": sum(count == 1 for count in starts.values()),
        **{f"{what}s": count for what, count in sorted(fleet.happened.items())},
        "wait median s": round(ordered[len(ordered) // 2], 1) if ordered else None,
        "wait longest s": round(ordered[-1], 1) if ordered else None,
        "fleet s": round(seconds, 1),
    }


def _client(site: Site, number: int, plan: Sequence[float], ends: dict[str, End]) -> None:
    """Send requests at these moments and wait for the end of each; note how long each took."""
    bus = open_bus(site.route, repository=None, state=site.folder / f"client-{number}", clock=CLOCK)
    began_s = time.monotonic()
    sent: list[tuple[RequestRef, float]] = []
    for moment_s in plan:
        time.sleep(max(0.0, began_s + moment_s - time.monotonic()))
        sent.append((push(bus, make_request(bus.identity().bus_id, "count")), time.monotonic()))
    while sent and time.monotonic() - began_s < LIMIT_S:
        for ref, sent_s in list(sent):
            view = bus.view(ref.id)
            if view.claim is None or view.claim.claim.result_oid is None:
                continue
            if not verify_tree(bus.read_result(view.claim.claim.result_oid).files, run_id=ref.id):
                ends[ref.id] = End(view.claim.claim.reason or "", time.monotonic() - sent_s)
            sent.remove((ref, sent_s))
        time.sleep(1.0)


@contextmanager
def _site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        Path(name).chmod(0o755)  # a root runner's programs run as another user
        site = Site(Path(name), work=WORK, lease_s=LEASE_S)
        site.create_bus()
        try:
            yield site
        finally:
            for process in site.runners:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGCONT)
                    process.kill()
            for process in site.runners:
                process.wait(timeout=60)


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return what came of the requests whose runners were killed and stalled."""
    rows = rows_of(entries)
    kills, stalls, lost, twice = (
        sum(row.get(key, 0) for row in rows) for key in ("kills", "stalls", "lost", "begun twice")
    )
    return [f"{len(rows)} seeds, {kills} kills, {stalls} stalls: {lost} lost, {twice} begun twice"]


STUDY = Study(
    "bus-chaos",
    f"Is any of {REQUESTS} requests lost or run twice when {RUNNERS} runners are killed and stalled at random?",
    lambda: [f"{CLIENTS} clients, {RUNNERS} runners, {REQUESTS} requests, seed {seed}" for seed in SEEDS],
    run,
    "a quarter of an hour",
    summary,
)
