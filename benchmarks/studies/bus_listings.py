"""What a listing of a bus costs when runs have piled up, over git's protocols v2 and v0.

The generator writes the refs of ended runs as a busy repository has them: packed, each a request branch and a claim.
Bytes are those of the server's reply as git's packet trace shows it; over v0 every ref is sent.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.study import Row, Study
from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.refs import names
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.bus.views import RECENT_S, ListingWindow
from bridge.ids import new_id
from bridge.presets import registry
from bridge.system.clock import SystemClock
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import bare
from tests.fakes.memory_bus import bus_record

DAY_MS = 86_400_000
BYTES_A_RUN, BYTES_BASE = 200, 20_000
HISTORIES = {
    "1000 runs over 300 days": (1000, 300 * DAY_MS),
    "10000 runs over 300 days": (10_000, 300 * DAY_MS),
    "100000 runs over 300 days": (100_000, 300 * DAY_MS),
    "2000 runs in one day": (2000, DAY_MS),
}
PROTOCOLS = ("v2", "v0")


def cases() -> Sequence[str]:
    """Return a case for each history and protocol."""
    return [f"{history}, {protocol}" for history in HISTORIES for protocol in PROTOCOLS]


def run(case: str) -> list[Row]:
    """List a bus with a history, whole and by its window.

    Raises:
        RuntimeError: a listing by window over v2 is dearer than the bound.
    """
    history, _, protocol = case.rpartition(", ")
    count, span_ms = HISTORIES[history]
    with tempfile.TemporaryDirectory(prefix="listings-") as folder:
        return [measured(Path(folder), count, span_ms, protocol)]


def measured(folder: Path, count: int, span_ms: int, protocol: str) -> Row:
    """Return the bytes and seconds of both listings.

    Raises:
        RuntimeError: a listing by window over v2 is dearer than the bound.
    """
    clock = SystemClock()
    remote = bare(folder / "remote.git")
    maker = open_bus(str(remote), repository=None, state=folder / "maker", clock=clock)
    maker.create(bus_record(clock))
    oid = Actor(maker, clock).submit().ref.oid
    recent = write_history(remote, oid, count, span_ms, clock.now())
    # v0 is what plain ssh without AcceptEnv GIT_PROTOCOL speaks too: every ref is sent, whatever is asked for.
    route = Route(str(remote), "here", (("protocol.version", protocol.removeprefix("v")),), is_local=True)
    (folder / "host").mkdir()
    host = RefBus(GitStore(route, folder / "host"), clock=clock, pacer=Pacer(None, 60.0, clock))
    window = ListingWindow(int(clock.now().timestamp() * 1000), tuple(registry()))
    host.snapshot(window)
    began = time.monotonic()
    part = host.snapshot(window)
    between = time.monotonic()
    whole = host.snapshot()
    bound = BYTES_A_RUN * recent + BYTES_BASE
    if protocol == "v2" and part.bytes_received > bound:
        raise RuntimeError(f"{part.bytes_received} bytes for {recent} recent runs, at most {bound}")
    return {
        "runs": count,
        "runs of two days": recent,
        "claims listed": len(part.claims),
        "window bytes": part.bytes_received,
        "bound bytes": bound,
        "whole bytes": whole.bytes_received,
        "window s": round(between - began, 3),
        "whole s": round(time.monotonic() - between, 3),
    }


def write_history(remote: Path, oid: str, count: int, span_ms: int, now: dt.datetime) -> int:
    """Add the refs of ended runs, spread evenly; return how many are of the last two days."""
    now_ms = int(now.timestamp() * 1000)
    listed = subprocess.run(
        ["git", "-C", str(remote), "for-each-ref", "--format=%(objectname) %(refname)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = listed.stdout.splitlines()
    moments = [now_ms - number * span_ms // count for number in range(count)]
    for number, moment in enumerate(moments):
        run_id = new_id(moment, number.to_bytes(10, "big"))
        lines.append(f"{oid} {names.claim_ref(names.DEFAULT_PREFIX, run_id)}")
        lines.append(f"{oid} refs/heads/mac-bridge/mlx-env-probe-{run_id}")
    packed = "\n".join(sorted(lines, key=lambda line: line.split(" ")[1]))
    (remote / "packed-refs").write_text(f"# pack-refs with: sorted\n{packed}\n", encoding="ascii")
    return sum(moment >= now_ms - RECENT_S * 1000 for moment in moments)


STUDY = Study("listings", "What does a listing cost when runs have piled up?", cases, run)
