"""Runners in simulated time on a bus that counts pushes, for tests and the benchmark of the push budget.

The clock moves on while a renewal's thread is on its way from its turn to its push, so moments are those of the turns:
the budget's own file has them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.bus.refbus import RefBus
from bridge.bus.store.interface import RefUpdate
from bridge.bus.store.push_budget import Pacer
from bridge.limits import BEACON_INTERVAL_HOSTED_S, LEASE_MAX_S, PUSHES_PER_MINUTE_HOSTED
from bridge.runner.connection.link import link_to
from bridge.runner.run.claim_renewal import ClaimRenewal
from bridge.runner.service.loop import Runner
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryRemote, MemoryStore, bus_record
from tests.support.runner_world import RunnerProcess

DAY_S = 24 * 3600.0
HOSTED = {"lease_s": LEASE_MAX_S, "beacon_interval_s": BEACON_INTERVAL_HOSTED_S}
BUDGET_FILE = "pushes.json"


class CountingStore(MemoryStore):
    """Notes when every push was made and which refs it moved."""

    def __init__(self, remote: MemoryRemote, clock: FakeClock) -> None:
        super().__init__(remote)
        self.clock = clock
        self.pushes: list[tuple[float, tuple[str, ...]]] = []

    def push(self, updates: Sequence[RefUpdate], *, atomic: bool = False):
        self.pushes.append((self.clock.steady_s(), tuple(update.ref for update in updates)))
        return super().push(updates, atomic=atomic)


def counted_bus(remote: MemoryRemote, clock: FakeClock, folder: Path) -> tuple[CountingStore, RefBus]:
    """Return a bus of a host whose budget lies in ``folder``."""
    store = CountingStore(remote, clock)
    return store, RefBus(store, clock=clock, pacer=Pacer(folder / BUDGET_FILE, PUSHES_PER_MINUTE_HOSTED, clock))


def hosted(clock: FakeClock, folder: Path, **record: object) -> tuple[CountingStore, RefBus]:
    """Return a counted bus with its record."""
    store, bus = counted_bus(MemoryRemote(), clock, folder)
    bus.create(bus_record(clock, **record))
    return store, bus


def idle(runner: Runner, clock: FakeClock, seconds: float, step_s: float = 5.0) -> None:
    """Let a runner look at an empty queue."""
    for _ in range(int(seconds / step_s)):
        runner.step()
        clock.advance(step_s)


def log_every_second(
    renewals: Sequence[ClaimRenewal], clock: FakeClock, folder: Path, seconds: int, pause_s: float = 0.008
) -> set[float]:
    """Let runs write a line a second; return the turns that their pushes took.

    ``pause_s`` of real time pass per simulated second: a renewal that gets too little of it pushes less often.
    """
    began_s, turns = clock.steady_s(), set[float]()
    for renewal in renewals:
        renewal.start()
    pause = threading.Event()
    for second in range(seconds):
        for renewal in renewals:
            renewal.feed(f"line {second}\n".encode())
        clock.advance(1.0)
        pause.wait(pause_s)
        turns |= _turns(folder / BUDGET_FILE)
    for renewal in renewals:
        renewal.stop()
    return {turn for turn in turns | _turns(folder / BUDGET_FILE) if turn >= began_s}


@dataclass(frozen=True)
class Busy:
    """What one busy run pushed: the refs of every push, and the turns."""

    renewal: ClaimRenewal
    pushed: tuple[tuple[str, ...], ...]
    turns: frozenset[float]


def busy(process: RunnerProcess, clock: FakeClock, folder: Path, seconds: int, pause_s: float = 0.008) -> Busy:
    """Run one run on a hosted remote that writes a log line every second."""
    store, bus = hosted(clock, folder, **HOSTED)
    link = link_to(bus, clock)
    actor = Actor(bus, clock, "mini")
    sent = actor.submit()
    claim = bus.claim(actor.record(sent.ref, "claimed", 0, lease_s=LEASE_MAX_S))
    claim = bus.advance(claim, actor.record(sent.ref, "started", 1, lease_s=LEASE_MAX_S, phase="running"))
    clock.advance(120.0)
    beacons = process.on(link)._beacons
    renewal = ClaimRenewal(link, claim, clock=clock, beacon=beacons.due, asked_s=clock.steady_s())
    before = len(store.pushes)
    turns = log_every_second([renewal], clock, folder, seconds, pause_s)
    return Busy(renewal, tuple(refs for _, refs in store.pushes[before:]), frozenset(turns))


def most_in_a_minute(moments: Iterable[float]) -> int:
    """Return the largest count within 60 s."""
    taken = list(moments)
    return max((sum(first <= moment < first + 60.0 for moment in taken) for first in taken), default=0)


def _turns(path: Path) -> set[float]:
    """Return the turns of the last minute, none while a runner is writing them."""
    try:
        return set(json.loads(path.read_text()))
    except ValueError:
        return set()
