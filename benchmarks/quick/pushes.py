"""How often a runner on a hosted remote pushes: counted over simulated time, so the same on every machine.

Budget: at most 4 a minute for what can wait, shared by the runners of a host. repeating it changes nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.quick.figures import Figure
from bridge.limits import PUSHES_PER_MINUTE_HOSTED
from bridge.runner.connection.link import link_to
from tests.fakes.bus_actors import FakeClock
from tests.fakes.counted_pushes import DAY_S, HOSTED, busy, hosted, idle, most_in_a_minute
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.support.runner_world import World

BUSY_S = 900
IDLE_AN_HOUR = 12.0


def measure(_repeats: int = 0) -> list[Figure]:
    """Return counts of pushes."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_idle(Path(folder) / "idle"), *_busy(Path(folder) / "busy")]


def _world(folder: Path, clock: FakeClock) -> World:
    folder.mkdir()
    remote = MemoryRemote()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    return World(state=folder / "state", remote=remote, clock=clock)


def idle_moments(folder: Path, seconds: float) -> list[float]:
    """Return when an idle runner on a hosted remote pushed, in simulated time."""
    clock = FakeClock()
    world = _world(folder, clock)
    store, bus = hosted(clock, folder, **HOSTED)
    runner = world.process.on(link_to(bus, clock))
    before = len(store.pushes)
    idle(runner, clock, seconds)
    return [moment for moment, _ in store.pushes[before:]]


def _idle(folder: Path) -> list[Figure]:
    moments = idle_moments(folder, DAY_S)
    return [
        Figure("pushes of an idle day", len(moments), "pushes"),
        Figure("pushes of an idle hour", round(len(moments) * 3600 / DAY_S, 2), "pushes", IDLE_AN_HOUR),
        Figure("most in a minute, idle", most_in_a_minute(moments), "pushes", PUSHES_PER_MINUTE_HOSTED),
    ]


def _busy(folder: Path) -> list[Figure]:
    clock = FakeClock()
    done = busy(_world(folder, clock).process, clock, folder, BUSY_S, pause_s=0.05)
    mean = round(len(done.turns) * 60 / BUSY_S, 2)
    refs = sum(map(len, done.pushed)) / max(1, len(done.pushed))
    return [
        Figure("most in a minute, a run that logs every second", most_in_a_minute(done.turns), "pushes",
               PUSHES_PER_MINUTE_HOSTED),
        Figure("mean in a minute, the same", mean, "pushes", PUSHES_PER_MINUTE_HOSTED),
        Figure("refs moved by one push, the same", round(refs, 2), "refs"),
    ]  # fmt: skip
