"""Many clients and runners on one stepped bus: is every request run once, whatever the order of their steps?

Single-threaded on a virtual clock, over the bus in memory, with the product's runners; programs are functions. A case
is a seed, which decides when requests are sent and who goes first of those that are due at the same moment.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.studies.study import Row, Study
from tests.steps.world import SteppedWorld

LARGE, SMALL = "200 clients, 8 runners, 2000 requests", "20 clients, 3 runners, 60 requests"
SHAPES = {LARGE: (200, 8, 2000), SMALL: (20, 3, 60)}
SEEDS = (1, 2, 3)
SPREAD_S = 1800.0
LIMIT_S = 6 * 3600.0
POLL_S = 60.0


def run(case: str) -> list[Row]:
    """Step one fleet until every client has its result.

    Raises:
        RuntimeError: a request was lost, or run twice.
    """
    shape, _, seed = case.rpartition(", seed ")
    return fleet(*SHAPES[shape], seed=int(seed))


def fleet(clients: int, runners: int, requests: int, *, seed: int) -> list[Row]:
    """Step a fleet of this size and return what it came to.

    Raises:
        RuntimeError: a request was lost, or run twice.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        world = SteppedWorld(Path(folder), seed=seed, run_s=10.0, hosted=True, record={"lease_s": 600.0})
        waits: list[float] = []
        try:
            for number in range(runners):
                world.serve(world.runner(f"runner-{number}"))
            for number in range(clients):
                mine = requests // clients + (number < requests % clients)
                at = sorted(chance.uniform(0.0, SPREAD_S) for _ in range(mine))
                world.clock.start(client(world, at, waits), f"client-{number}")
            done = world.clock.run_until(lambda: len(waits) == requests, world.clock.steady_s() + LIMIT_S)
            times = world.times_executed()
            calls = sum((one.meter.counts for one in world.runners), Counter())
        finally:
            world.close()
    lost, twice = requests - len(waits), sum(count > 1 for count in times.values())
    if not done or lost or twice or len(times) != requests:
        raise RuntimeError(f"{lost} requests lost, {twice} run twice, {len(times)} of {requests} run")
    waits.sort()
    return [
        {
            "requests": requests,
            "lost": lost,
            "run twice": twice,
            "wait median s": round(waits[len(waits) // 2], 1),
            "wait longest s": round(waits[-1], 1),
            "calls a request": {verb: round(count / requests, 2) for verb, count in sorted(calls.items())},
        }
    ]


def client(world: SteppedWorld, at: Sequence[float], waits: list[float]) -> Callable[[], None]:
    """Return the work of a client: send requests at these moments, one after the other, and wait for each end."""
    began_s = world.clock.steady_s()

    def work() -> None:
        for moment in at:
            world.clock.sleep(max(0.0, began_s + moment - world.clock.steady_s()))
            asked_s = world.clock.steady_s()
            ref = world.ask()
            while not world.ended(ref.id):
                world.clock.sleep(POLL_S)
            waits.append(world.clock.steady_s() - asked_s)

    return work


def _study(name: str, shape: str) -> Study:
    return Study(
        name, f"Is every request of {shape} run once?", lambda: [f"{shape}, seed {seed}" for seed in SEEDS], run
    )


SMALL_STUDY = _study("small-fleet", SMALL)
LARGE_STUDY = _study("fleet", LARGE)
