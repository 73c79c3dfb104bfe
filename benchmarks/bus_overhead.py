"""What a run costs on the bus beside the raw git calls it stands on, and what waiting costs on a full bus.

Targets: all bus steps of one run within 0.6 s on a loopback remote (the floor is printed beside it), and waiting among
10,000 request branches at most 5 times as long as among 10.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.interleave import interleave, ratio
from bridge.bus import names, open_bus
from bridge.bus.gitstore import GitStore
from bridge.bus.route import Route
from bridge.system.clock import SystemClock
from tests.fakes.bus_actors import Actor
from tests.fakes.memory_bus import bus_record

CLEAN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
WHO = {f"GIT_{role}_{what}": "b@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def measure(repeats: int = 15) -> dict[str, object]:
    """Return medians in milliseconds, ratios of the same interleaved run, and bytes of one poll."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        result = _steps(root / "steps", repeats)
        return {**result, **_waiting(root / "waiting", repeats)}


def _steps(root: Path, repeats: int) -> dict[str, object]:
    client, host = _actor(root, "client"), _actor(root, "host")
    floor = _floor(root / "floor")

    def run() -> None:
        sent = client.submit()
        (seen,) = [one for one in host.bus.snapshot().requests if one.id == sent.ref.id]
        host.bus.read_request(seen)
        ended = host.run(seen)
        host.bus.copy_result(seen, ended.claim.result_oid or "")
        client.bus.view(sent.ref.id)
        client.bus.read_result(ended.claim.result_oid or "")

    timings = interleave({"raw git floor": floor, "bus steps of one run": run}, repeats)
    return {
        **{f"{name} ms": round(timing.median_s * 1e3, 1) for name, timing in timings.items()},
        "bus steps of one run p90 ms": round(timings["bus steps of one run"].p90_s * 1e3, 1),
        "bus steps of one run ratio": round(ratio(timings, "bus steps of one run", "raw git floor"), 2),
    }


def _floor(root: Path) -> Callable[[], None]:
    """Return the same steps as plain git commands: five pushes, three listings, three fetches."""
    remote, near, far = root / "remote.git", root / "near.git", root / "far.git"
    for path in (remote, near, far):
        _git("init", "--quiet", "--bare", "--template=", str(path))
    empty = _git("hash-object", "-t", "tree", "-w", os.devnull, folder=near)
    _git("hash-object", "-t", "tree", "-w", os.devnull, folder=far)
    count = itertools.count()

    def commit(folder: Path, *parents: str) -> str:
        every = [part for parent in parents for part in ("-p", parent)]
        return _git("commit-tree", "-m", str(next(count)), *every, empty, folder=folder)

    def steps() -> None:
        number = next(count)
        branch, claim = f"refs/heads/r/{number}", f"refs/c/{number}"
        _git("push", "--quiet", str(remote), f"{commit(near)}:{branch}", folder=near)
        _git("ls-remote", str(remote), folder=far)
        _git("fetch", "--quiet", str(remote), branch, folder=far)
        tip = commit(far)
        _git("push", "--quiet", str(remote), f"{tip}:{claim}", folder=far)
        for _ in range(2):
            tip = commit(far, tip)
            _git("push", "--quiet", str(remote), f"{tip}:{claim}", folder=far)
        _git("push", "--quiet", str(remote), f"{commit(far, 'FETCH_HEAD')}:{branch}", folder=far)
        _git("ls-remote", str(remote), folder=near)
        _git("fetch", "--quiet", str(remote), claim, folder=near)
        _git("fetch", "--quiet", str(remote), branch, folder=near)

    return steps


def _waiting(root: Path, repeats: int) -> dict[str, object]:
    ways: dict[str, Callable[[], object]] = {}
    polled: dict[str, int] = {}
    for count in (10, 10_000):
        place = root / str(count)
        client = _actor(place, "client")
        sent = client.submit()
        lines = [f"{sent.ref.oid} refs/heads/mac-bridge/mlx-env-probe-{number:026d}" for number in range(count)]
        (place / "remote.git" / "packed-refs").write_text("# pack-refs with: sorted\n" + "\n".join(lines) + "\n")
        ways[f"one poll among {count}"] = lambda client=client, run_id=sent.ref.id: client.bus.view(run_id)
        store = GitStore(Route(str(place / "remote.git"), "loopback", (), is_local=True), place / "poll")
        own = [names.claim_ref(names.DEFAULT_PREFIX, sent.ref.id), sent.ref.ref]
        polled[f"bytes of one poll among {count}"] = store.list(own).bytes_received
    timings = interleave(ways, repeats)
    return {
        **{f"{name} ms": round(timing.median_s * 1e3, 1) for name, timing in timings.items()},
        **polled,
        "one poll ratio": round(ratio(timings, "one poll among 10000", "one poll among 10"), 2),
    }


def _actor(root: Path, name: str) -> Actor:
    clock = SystemClock()
    remote = root / "remote.git"
    fresh = not remote.exists()
    if fresh:
        root.mkdir(parents=True, exist_ok=True)
        _git("init", "--quiet", "--bare", "--template=", str(remote))
    bus = open_bus(str(remote), repository=None, state=root / name, clock=clock)
    if fresh:
        bus.create(bus_record(clock))
    return Actor(bus, clock, name)


def _git(*arguments: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **CLEAN, **WHO}, check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()
