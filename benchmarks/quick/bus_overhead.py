"""What the bus steps of a run cost beside the raw git calls they stand on; target: within 0.6 s on a loopback remote.

Both sides in one process, nothing runs: `benchmarks.quick.overhead` has a real runner and client.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import interleave, ratio
from bridge.bus import open_bus
from bridge.system.clock import SystemClock
from tests.fakes.bus_actors import Actor
from tests.fakes.memory_bus import bus_record

CLEAN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
WHO = {f"GIT_{role}_{what}": "b@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def measure(repeats: int = 15) -> list[Figure]:
    """Return medians in milliseconds and ratios of the same interleaved run."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        client, host = actor(root, "client"), actor(root, "host")

        def run() -> None:
            sent = client.submit()
            (listed,) = [request for request in host.bus.snapshot().requests if request.id == sent.ref.id]
            host.bus.read_request(listed)
            ended = host.run(listed)
            host.bus.copy_result(listed, ended.claim.result_oid or "")
            client.bus.view(sent.ref.id)
            client.bus.read_result(ended.claim.result_oid or "")

        timings = interleave({"raw git floor": floor(root / "floor"), "bus steps of one run": run}, repeats)
    steps = timings["bus steps of one run"]
    return [
        Figure("raw git floor of the same steps", round(timings["raw git floor"].median_s * 1e3, 1), "ms"),
        Figure("bus steps of one run", round(steps.median_s * 1e3, 1), "ms", 600.0),
        Figure("bus steps of one run, p90", round(steps.p90_s * 1e3, 1), "ms"),
        Figure("bus steps to floor", round(ratio(timings, "bus steps of one run", "raw git floor"), 2), "ratio"),
    ]


def floor(root: Path) -> Callable[[], None]:
    """Return the steps of one run as plain git commands: five pushes, three listings, three fetches."""
    remote, near, far = root / "remote.git", root / "near.git", root / "far.git"
    for path in (remote, near, far):
        git("init", "--quiet", "--bare", "--template=", str(path))
    empty = git("hash-object", "-t", "tree", "-w", os.devnull, folder=near)
    git("hash-object", "-t", "tree", "-w", os.devnull, folder=far)
    count = itertools.count()

    def commit(folder: Path, *parents: str) -> str:
        every = [part for parent in parents for part in ("-p", parent)]
        return git("commit-tree", "-m", str(next(count)), *every, empty, folder=folder)

    def steps() -> None:
        number = next(count)
        branch, claim = f"refs/heads/r/{number}", f"refs/c/{number}"
        git("push", "--quiet", str(remote), f"{commit(near)}:{branch}", folder=near)
        git("ls-remote", str(remote), folder=far)
        git("fetch", "--quiet", str(remote), branch, folder=far)
        tip = commit(far)
        git("push", "--quiet", str(remote), f"{tip}:{claim}", folder=far)
        for _ in range(2):
            tip = commit(far, tip)
            git("push", "--quiet", str(remote), f"{tip}:{claim}", folder=far)
        git("push", "--quiet", str(remote), f"{commit(far, 'FETCH_HEAD')}:{branch}", folder=far)
        git("ls-remote", str(remote), folder=near)
        git("fetch", "--quiet", str(remote), claim, folder=near)
        git("fetch", "--quiet", str(remote), branch, folder=near)

    return steps


def actor(root: Path, name: str) -> Actor:
    """Return one side of a bus below a folder, made when it is not there."""
    clock = SystemClock()
    remote = root / "remote.git"
    fresh = not remote.exists()
    if fresh:
        root.mkdir(parents=True, exist_ok=True)
        git("init", "--quiet", "--bare", "--template=", str(remote))
    bus = open_bus(str(remote), repository=None, state=root / name, clock=clock)
    if fresh:
        bus.create(bus_record(clock))
    return Actor(bus, clock, name)


def git(*arguments: str, folder: Path | None = None) -> str:
    """Run git as it is, without anybody's configuration."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **CLEAN, **WHO}, check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()
