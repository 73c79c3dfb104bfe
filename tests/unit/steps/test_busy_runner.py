"""A runner that always has a next request: what it does between runs is not left for ever."""

from __future__ import annotations

from pathlib import Path

from bridge.limits import UPKEEP_RUNS_COUNT
from tests.steps.world import SteppedWorld


def test_its_copies_of_the_bus_are_packed_though_it_never_idles(tmp_path: Path) -> None:
    world = SteppedWorld(tmp_path, seed=1, run_s=5.0)
    refs = [world.ask() for _ in range(UPKEEP_RUNS_COUNT + 2)]
    mini = world.serve(world.runner())
    assert world.clock.run_until(lambda: all(world.ended(ref.id) for ref in refs), 3600.0), mini.log_lines
    assert mini.store.tidied == 2  # at its start, and when so many have ended
    world.close()
