"""Whole runs through a git host of whose calls a share fails: with limits, outages and connections that are cut.

A real runner serves and real clients ask and wait, all over HTTP through the same host. A command that ends after
its third try is given again, as a person does, and must go on with the run it began. Afterwards every question has one
request, one end whose result verifies, and its program began once. A case is some runs of one share of faults.
"""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.studies.study import Entry, Row, Study
from bridge.errors import RemoteError
from bridge.trust.verifier import verify_tree
from tests.fakes.clone import Clone
from tests.fakes.git_host import Call, GitHost, Reply
from tests.support.runner_site import PRESET, Site

SHARES = (10, 20, 30)
PARTS, RUNS, CLIENTS = 7, 10, 5
GIVEN_AGAIN_MAX = 40
LATE_S = 3.0
EXPECTED = "gate_rejected"  # what the empty report of a program that does nothing comes to
ASKING = '[params.number]\ntype = "int"\nmin = 0\nmax = 1000\ndefault = 0\nhelp = "tells one run from another"\n'
FAULTS = {
    "429": Reply(429, b"rate limited\n"),
    "429 with Retry-After": Reply(429, b"rate limited\n", (("Retry-After", "1"),)),
    "502": Reply(502, b"bad gateway\n"),
    "503": Reply(503, b"unavailable\n"),
    "cut": Reply(None),
}


class Unreliable:
    """A gate that answers a share of all calls with one fault after the other, and counts them.

    A connection may be cut before git has seen the call, and after it has done what it was asked for.
    """

    def __init__(self, host: GitHost, share: int) -> None:
        self._host, self._share = host, share / 100
        self._chance, self._faults = random.Random(share), itertools.cycle(FAULTS)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __call__(self, call: Call) -> Reply | None:
        with self._lock:
            self.counts["calls"] += 1
            if self._chance.random() >= self._share:
                return None
            name = next(self._faults)
            if name == "cut" and call.updates and self._chance.random() < 0.5:
                self.counts["answers lost"] += 1
                self._host.lose_replies += 1
                return None
            self.counts[name] += 1
            return FAULTS[name]


def cases() -> Sequence[str]:
    """Return every part of every share, the shares in turn."""
    return [f"{share} %, part {part}" for part in range(1, PARTS + 1) for share in SHARES]


def run(case: str) -> list[Row]:
    """Let some clients ask their runs, each one after the other, and wait for each.

    A run that was lost or doubled is a row like any other: a part that is measured until it passes would prove nothing.

    Raises:
        RuntimeError: a run has not ended after many commands, or the runner ended.
    """
    share = int(case.partition(" %")[0])
    with _site() as (site, host):
        url = host.url(site.folder / "bus.git")
        runner = site.start("serve", "--bus", url)
        site.until(lambda: site.requester().read_beacons(), "the runner does not start")
        unreliable = Unreliable(host, share)
        unreliable._chance.seed(case)
        host.gates.append(unreliable)
        with ThreadPoolExecutor(CLIENTS) as clients:
            shares = [range(number, RUNS, CLIENTS) for number in range(CLIENTS)]
            answers = clients.map(lambda numbers: _ask(site.folder / f"client-{numbers[0]}", url, numbers), shares)
            outcomes = [outcome for each in answers for outcome in each]
        host.gates.clear()
        time.sleep(LATE_S)  # whoever would begin or end a run once more has the time to
        row = _row(site, outcomes) | {"calls": dict(sorted(unreliable.counts.items()))}
        if runner.poll() is not None:
            raise RuntimeError(f"the runner ended with {runner.returncode}")
    return [row]


def _ask(folder: Path, url: str, numbers: Sequence[int]) -> list[tuple[str, int]]:
    """Ask questions until the run of each has ended; return the runs' ids, and how often a command was given again.

    Raises:
        RuntimeError: a run has not ended after many commands.
    """
    clone, outcomes = Clone(folder), list[tuple[str, int]]()
    for number in numbers:
        for again in range(GIVEN_AGAIN_MAX):
            ran = clone.mac("run", "count", "-p", f"number={number}", "--bus", url, "--wait", "--json")
            document = json.loads(ran.stdout or "{}")
            if document.get("terminal"):
                outcomes.append((str(document["id"]), again))
                break
        else:
            raise RuntimeError(f"run {number} has not ended after {GIVEN_AGAIN_MAX} commands: {ran.stderr}")
    return outcomes


def _row(site: Site, outcomes: Sequence[tuple[str, int]]) -> Row:
    """Return what became of the runs, as the bus and the program's own count tell it without any fault."""
    starts, bus = Counter(site.starts()), site.requester()
    ids = [run_id for run_id, _ in outcomes]
    requests = [ref.id for ref in bus.snapshot().requests]
    ends = {run_id: _end(site, run_id) for run_id in ids}
    lost = {run_id: end for run_id, end in ends.items() if end != EXPECTED or starts[run_id] == 0}
    twice = len(ids) - len(set(ids)) + sum(starts[run_id] > 1 for run_id in starts)
    twice += len({*starts, *requests} - set(ids))  # a second request of a question that was answered
    for run_id, end in lost.items():
        print(f"    {run_id}: {end}, begun {starts[run_id]} times", flush=True)
    return {
        "runs": len(ids),
        "lost": len(lost),
        "twice": twice,
        "given again": sum(again for _, again in outcomes),
        "runs given again": sum(again > 0 for _, again in outcomes),
    }


def _end(site: Site, run_id: str) -> str:
    """Return how a run ended, in words of its claim, or what is wrong with its end."""
    bus = site.requester()
    try:
        claim = bus.view(run_id).claim
        if claim is None or claim.claim.result_oid is None:
            return "no end" if claim is None else f"no result, {claim.claim.state}"
        files = bus.read_result(claim.claim.result_oid).files
    except RemoteError as error:
        return error.message
    problems = verify_tree(files, run_id=run_id)
    if problems or claim.claim.reason != EXPECTED:
        return f"{claim.claim.reason} {problems} {files.get('manifest.json', b'')[:1500]!r}"
    return claim.claim.reason


@contextmanager
def _site() -> Iterator[tuple[Site, GitHost]]:
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        Path(name).chmod(0o755)  # a root runner's programs run as another user
        site = Site(Path(name))
        asking = PRESET.replace('"count"]', '"count", "{number}"]') + ASKING
        (site.folder / "presets" / "count.toml").write_text(asking)
        site.create_bus()
        host = GitHost(site.folder)
        try:
            yield site, host
        finally:
            site.end()
            host.close()


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return for each share how many runs were lost or doubled, and what they met."""
    lines = []
    for share in SHARES:
        rows = [row for entry in entries if entry["case"].startswith(f"{share} %") for row in entry["rows"]]
        if not rows:
            continue
        calls: Counter[str] = Counter()
        for row in rows:
            calls.update(row["calls"])
        total = calls.pop("calls")
        runs, lost, twice, again = (sum(row[key] for row in rows) for key in ("runs", "lost", "twice", "given again"))
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(calls.items()))
        lines.append(
            f"{share} % of calls failing: {lost} lost, {twice} twice in {runs} runs; {again} commands given again; "
            f"of {total} calls {kinds}"
        )
    return lines


STUDY = Study(
    "bus-faults",
    "Is a run lost, or sent, begun or ended twice, where a share of all calls to the git host fails?",
    cases,
    run,
    "three quarters of an hour",
    summary,
)
