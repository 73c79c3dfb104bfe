"""What looking at a bus costs when runs have piled up, over git's protocols v2 and v0: calls and bytes, not seconds.

Bytes of a listing are those of the server's reply as git's packet trace shows it, and those that asked for it; over v0
every ref is sent. A push is answered with all refs first, over either protocol: those bytes are counted apart. A start
and `ls` list the last two days; a poll lists the last minutes and what has not ended, but for one every five minutes.
"""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.bus.histories import History, sizes, write_history
from benchmarks.studies.study import Row, Study
from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.store.gather import WorkBudget
from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import Listing, RefAnswer, RefUpdate
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.bus.views import RECENT_S, ListingWindow
from bridge.ids import unix_ms
from bridge.presets.installed import registry
from bridge.system.clock import SystemClock
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import bare
from tests.fakes.memory_bus import bus_record

BYTES_A_RUN, BYTES_BASE = 200, 20_000
HISTORIES = {
    "1000 runs over 300 days": History(1000, 300),
    "10000 runs over 300 days": History(10_000, 300),
    "100000 runs over 300 days": History(100_000, 300),
    "2000 runs in one day": History(2000, 1),
}
PROTOCOLS = ("v2", "v0")
PAGE = 20


class Metered(GitStore):
    """The store of the product, its calls counted and the bytes of its listings."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__(*arguments, **options)

    def list(self, prefixes: Sequence[str], **options: Any) -> Listing:
        tips = super().list(prefixes, **options)
        self.calls += Counter({"listings": 1, "bytes": tips.bytes_received, "bytes sent": tips.bytes_sent})
        return tips

    def push(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Mapping[str, RefAnswer]:
        self.calls["pushes"] += 1
        return super().push(updates, atomic=atomic)

    def obtain(self, refs: Mapping[str, str], *, max_bytes: int) -> None:
        self.calls["fetches"] += bool(self._missing(refs))
        super().obtain(refs, max_bytes=max_bytes)

    def isolate(self, name: str, oids: Sequence[str], **options: Any) -> GitStore:
        self.calls["fetches"] += 1
        return super().isolate(name, oids, **options)

    def take(self) -> dict[str, int]:
        """Return what was counted since the last time."""
        counts, self.calls = dict(sorted(self.calls.items())), Counter()
        return counts


def cases() -> Sequence[str]:
    """Return a case for each history and protocol."""
    return [f"{history}, {protocol}" for history in HISTORIES for protocol in PROTOCOLS]


def run(case: str) -> list[Row]:
    """Look at a bus with a history in all ways.

    Raises:
        RuntimeError: a listing by window over v2 is dearer than the bound.
    """
    history, _, protocol = case.rpartition(", ")
    with tempfile.TemporaryDirectory(prefix="listings-") as folder:
        return [measured(Path(folder), HISTORIES[history], protocol)]


def measured(folder: Path, history: History, protocol: str) -> Row:
    """Return the calls and bytes of everything that looks at a bus.

    Raises:
        RuntimeError: a listing by window over v2 is dearer than the bound.
    """
    clock = SystemClock()
    remote = bare(folder / "remote.git")
    open_bus(str(remote), repository=None, state=folder / "maker", clock=clock).create(bus_record(clock))
    ids = write_history(remote, history, clock.now())
    size = sum(sizes(remote))
    now_ms = int(clock.now().timestamp() * 1000)
    recent = sum(unix_ms(run_id) >= now_ms - RECENT_S * 1000 for run_id in ids)
    # v0 is what plain ssh without AcceptEnv GIT_PROTOCOL speaks too: every ref is sent, whatever is asked for.
    route = Route(str(remote), "here", (("protocol.version", protocol.removeprefix("v")),), is_local=True)
    row: Row = {"runs": history.runs, "runs of two days": recent, "repository bytes a run": size // history.runs}
    row |= _looks(Metered(route, _state(folder, "host")), clock, ListingWindow(now_ms, tuple(registry())))
    row["push answered with bytes"] = len(
        subprocess.run(
            ["git", "receive-pack", "--http-backend-info-refs", remote], capture_output=True, check=True
        ).stdout
    )
    row["bound bytes"] = BYTES_A_RUN * recent + BYTES_BASE
    if protocol == "v2" and row["start"]["bytes"] > row["bound bytes"]:
        raise RuntimeError(f"{row['start']['bytes']} bytes for {recent} recent runs, at most {row['bound bytes']}")
    return row


def _looks(store: Metered, clock: SystemClock, days: ListingWindow) -> Row:
    """Return what a start, a poll, a request, a claim, `status`, `ls` and a whole listing cost."""
    bus = RefBus(store, clock=clock, pacer=Pacer(None, 60.0, clock))
    actor, row = Actor(bus, clock), {}
    bus.identity()
    bus.read_beacons()
    bus.snapshot(days)
    row["start"] = store.take()
    ref = actor.submit().ref
    row["request"] = store.take()
    bus.snapshot(dataclasses.replace(days, fresh=True))
    row["poll"] = store.take()
    actor.claim(ref)
    row["claim"] = store.take()
    bus.view(ref.id)
    row["status"] = store.take()
    snapshot = bus.snapshot(days)
    newest = sorted(snapshot.claims, reverse=True)[:PAGE]
    bus.newest_claims({run_id: snapshot.claims[run_id] for run_id in newest}, WorkBudget(24))
    row["ls"] = store.take()
    bus.snapshot()
    row["whole listing"] = store.take()
    return row


def _state(folder: Path, name: str) -> Path:
    state = folder / name
    state.mkdir()
    return state


STUDY = Study(
    "bus-listings", "What does looking at a bus cost when runs have piled up?", cases, run, "a quarter of an hour"
)
