"""When a runner looks at what of its copies could be packed: once an hour, and sooner where many runs ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bridge.limits import UPKEEP_EVERY_S, UPKEEP_RUNS_COUNT
from bridge.runner.connection.link import link_to
from bridge.runner.service.upkeep import Upkeep
from bridge.runner.state.log import new_log
from bridge.system.tasks import Task, Threads
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import MemoryBus
from tests.support.runner_world import Lines


class Joined(Threads):
    """Work that has ended when it was started."""

    def start(self, work: Callable[[], None], name: str) -> Task:
        task = threading.Thread(target=work, name=name)
        task.start()
        task.join()
        return task


def test_a_round_begins_once_an_hour_and_after_many_runs() -> None:
    clock, lines = FakeClock(), list[str]()
    bus = MemoryBus(clock=clock)
    upkeep = Upkeep(
        link_to(bus, clock), clock=clock, tasks=Joined(), is_ending=lambda: False, log=new_log(Lines(lines))
    )  # fmt: skip
    rounds = []
    for hours, ended in ((0, 0), (0, UPKEEP_RUNS_COUNT - 1), (0, UPKEEP_RUNS_COUNT), (0.9, UPKEEP_RUNS_COUNT + 1),
                         (0.2, UPKEEP_RUNS_COUNT + 2), (0, 2 * UPKEEP_RUNS_COUNT + 2)):  # fmt: skip
        clock.advance(hours * UPKEEP_EVERY_S)
        upkeep.look(ended)
        rounds.append(bus.store.tidied)
    assert rounds == [1, 1, 2, 2, 3, 4], lines
