"""How often a runner on a hosted remote pushes: counted over simulated time, so the same on every machine.

Budget: at most 4 a minute for what can wait, shared by the runners of a host. repeating it changes nothing.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from benchmarks.figures import Figure
from bridge.limits import LEASE_HOSTED_S, PUSHES_PER_MINUTE_HOSTED
from bridge.runner.keeper import Keeper
from bridge.runner.link import link_to
from bridge.runner.loop import Runner
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.unit.bridge.runner.conftest import World
from tests.unit.bridge.runner.test_pushes import DAY_S, HOSTED, hosted, idle, most_in_a_minute

BUSY_S = 900


def measure(_repeats: int = 0) -> list[Figure]:
    """Return counts of pushes."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_idle(Path(folder) / "idle"), *_busy(Path(folder) / "busy")]


def _world(folder: Path, clock: FakeClock) -> World:
    folder.mkdir()
    remote = MemoryRemote()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    return World(state=folder / "state", remote=remote, clock=clock)


def _idle(folder: Path) -> list[Figure]:
    clock = FakeClock()
    world = _world(folder, clock)
    store, bus = hosted(clock, folder, **HOSTED)
    runner = Runner(world.host, link_to(bus, clock))
    before = len(store.pushes)
    idle(runner, clock, DAY_S)
    moments = [moment for moment, _ in store.pushes[before:]]
    return [
        Figure("pushes of an idle day", len(moments), "pushes"),
        Figure("most in a minute, idle", most_in_a_minute(moments), "pushes", PUSHES_PER_MINUTE_HOSTED),
    ]


def _busy(folder: Path) -> list[Figure]:
    clock = FakeClock()
    world = _world(folder, clock)
    store, bus = hosted(clock, folder, **HOSTED)
    link = link_to(bus, clock)
    runner = Runner(world.host, link)
    actor = Actor(bus, clock, "mini")
    sent = actor.submit()
    held = bus.claim(actor.record(sent.ref, "claimed", 0, lease_s=LEASE_HOSTED_S))
    held = bus.advance(held, actor.record(sent.ref, "started", 1, lease_s=LEASE_HOSTED_S, phase="running"))
    clock.advance(120.0)
    keeper = Keeper(link, held, clock=clock, beacon=runner._beacons.due, asked_s=clock.steady_s())
    before = len(store.pushes)
    keeper.start()
    pause = threading.Event()
    for second in range(BUSY_S):
        keeper.feed(f"line {second}\n".encode())
        clock.advance(1.0)
        pause.wait(0.05)
    keeper.stop()
    pushed = store.pushes[before:]
    moments = [moment for moment, _ in pushed]
    refs = sum(len(names) for _, names in pushed)
    return [
        Figure("most in a minute, a run that logs every second", most_in_a_minute(moments), "pushes",
               PUSHES_PER_MINUTE_HOSTED),
        Figure("mean in a minute, the same", round(len(moments) * 60 / BUSY_S, 2), "pushes", PUSHES_PER_MINUTE_HOSTED),
        Figure("refs moved by one push, the same", round(refs / max(1, len(pushed)), 2), "refs"),
    ]  # fmt: skip
