"""What one run costs beside raw git: git calls and processor time of client and runner, not seconds on a clock.

A real runner and a real client on a bus of this machine, a program that does nothing. Every git that either starts is
written down by a script of its name that is found first; what git starts in turn is not. Over HTTP each side has a
server of its own in front of the one repository, which counts requests and the bytes of their bodies. The least of
several runs is told: how often somebody looks depends on how long the others take.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.quick.bus_overhead import floor
from benchmarks.quick.overhead import run_once
from benchmarks.studies.study import Row, Study
from tests.fakes.git_host import GitHost
from tests.support.runner_site import Site

RUNS, WARM = 7, 2
FOLDER, HTTP = "a bus in a folder of this machine", "a bus over http on loopback"
STATE = "state-mini"  # the runner's folder
NOTE = '#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nexec {git} "$@"\n'


def run(case: str) -> list[Row]:
    """Measure some runs and the same steps as plain git commands."""
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a root runner's programs run as another user
        with noted(folder) as log:
            plain = floor(folder / "floor")
            plain()
            rows: Row = {"raw git": least([cost(log, plain)["client"] for _ in range(RUNS)])}
            rows |= sides(folder / "site", log, over_http=case == HTTP)
    return [rows]


def sides(folder: Path, log: Path, *, over_http: bool) -> dict[str, Row]:
    """Return what the client and the runner of a run each cost."""
    folder.mkdir(mode=0o755)
    site = Site(folder)
    site.create_bus()
    hosts = {who: GitHost(folder) for who in ("client", "runner")} if over_http else {}
    runner = site.start("serve", "--bus", hosts["runner"].url(folder / "bus.git") if hosts else site.route)
    try:
        site.until(lambda: site.requester().read_beacons(), "the runner does not start")
        if hosts:
            site.route = hosts["client"].url(folder / "bus.git")
        costs = [cost(log, lambda: run_once(site), runner.pid, hosts) for _ in range(WARM + RUNS)][WARM:]
    finally:
        runner.terminate()
        runner.wait(timeout=120)
        for host in hosts.values():
            host.close()
    return {who: least([cost_of[who] for cost_of in costs]) for who in ("client", "runner")}


def cost(
    log: Path, act: Callable[[], object], runner: int | None = None, hosts: Mapping[str, GitHost] | None = None
) -> dict[str, Row]:
    """Do something and return what it cost this process, a runner where there is one, and the host of each."""
    log.write_text("")
    for host in (hosts or {}).values():
        host.sizes.clear()
    pids = {"client": os.getpid()} | ({} if runner is None else {"runner": runner})
    before = {who: processor_s(pid) for who, pid in pids.items()}
    act()
    spent = {who: round(1e3 * (processor_s(pid) - before[who])) for who, pid in pids.items()}
    calls: dict[str, Counter[str]] = {who: Counter() for who in pids}
    for line in log.read_text().splitlines():
        if "http-backend" in line:  # of the hosts, in this process
            continue
        calls["runner" if f"{STATE}/" in line else "client"][verb(line)] += 1
    costs = {who: {**calls[who], "git calls": calls[who].total()} for who in pids}
    if not hosts:  # those take their processor time from the client's process
        costs = {who: costs[who] | {"processor ms": spent[who]} for who in pids}
    for who, host in (hosts or {}).items():
        sent, received = (sum(sizes) for sizes in zip(*host.sizes, strict=True))
        costs[who] |= {"http requests": len(host.sizes), "bytes sent": sent, "bytes received": received}
    return costs


def processor_s(pid: int) -> float:
    """Return the processor time of a process and of those of its children that have ended."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def verb(line: str) -> str:
    """Return what a call of git was for, by its arguments."""
    words = line.split()
    if "ls-remote" in words or "^refs/*" in words:
        return "listing"
    options = {place + 1 for place, word in enumerate(words) if word == "-c"}
    return next(word for place, word in enumerate(words) if not word.startswith("-") and place not in options)


def least(rows: Sequence[Row]) -> Row:
    """Return the least of each thing that was counted."""
    return {what: min(row.get(what, 0) for row in rows) for what in sorted({key for row in rows for key in row})}


@contextmanager
def noted(folder: Path) -> Iterator[Path]:
    """Let every git that this process and its children start be written to a file."""
    log, script, path = folder / "calls", folder / "bin" / "git", os.environ["PATH"]
    script.parent.mkdir()
    script.write_text(NOTE.format(log=log, git=shutil.which("git")))
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    log.touch()
    os.environ["PATH"] = f"{script.parent}:{path}"
    try:
        yield log
    finally:
        os.environ["PATH"] = path


STUDY = Study(
    "bus-calls",
    "What does a run cost beside raw git, in git calls, bytes and processor time?",
    lambda: [FOLDER, HTTP],
    run,
    "a minute",
)
