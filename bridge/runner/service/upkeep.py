"""Pack and prune this runner's copies of the bus now and then, beside the polling; begun while nothing runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bridge.errors import InfrastructureError
from bridge.limits import UPKEEP_EVERY_S, UPKEEP_RUNS_COUNT
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock
from bridge.system.tasks import Tasks


class Upkeep:
    """The upkeep of one runner's copies.

    Args:
        link: the bus.
        clock: times the rounds.
        tasks: runs a round beside the polling.
        is_ending: returns whether the runner was asked to end; that ends a round early, and the next start goes on.
        log: takes what happens.
    """

    def __init__(
        self, link: BusLink, *, clock: Clock, tasks: Tasks, is_ending: Callable[[], bool], log: logging.Logger
    ) -> None:
        self._link, self._clock, self._tasks = link, clock, tasks
        self._is_ending, self._log = is_ending, log
        self._due_s, self._due_runs = clock.steady_s(), UPKEEP_RUNS_COUNT
        self._going = False

    def look(self, ended: int) -> None:
        """Begin a round when one is due, by the time or by how many runs have ended."""
        if not self._going and (self._clock.steady_s() >= self._due_s or ended >= self._due_runs):
            self._going, self._due_runs = True, ended + UPKEEP_RUNS_COUNT
            self._tasks.start(self.work, "upkeep")

    def work(self) -> None:
        """Do one round here and now."""
        try:
            bus = self._link.beside().bus
            bus.stop_when(self._is_ending)
            bus.tend()
        except (InfrastructureError, OSError) as error:
            self._log.warning("its copies of the bus could not be packed and pruned: %s", error)
        except Exception:  # noqa: BLE001 (nobody is above this thread; the runner goes on with larger copies)
            self._log.exception("a bug ended a round of upkeep")
        finally:
            self._due_s = self._clock.steady_s() + UPKEEP_EVERY_S
            self._going = False
