"""Which runs somebody asked to cancel: what the polling saw, and a look of its own where the polling is held up.

Whether a cancel counts is decided by the run's sender. Knows nothing about how a run is ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from bridge.errors import InfrastructureError
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock
from bridge.system.tasks import Tasks

_LOOK_S: Final = {False: 5.0, True: 20.0}  # how old the polling's listing may be before a look of its own, if hosted


class Cancels:
    """The cancels of one runner's runs.

    Args:
        link: the bus.
        running_ids: returns the runs that are going on here.
        clock: times the looks.
        tasks: starts the watching beside the polling.
    """

    def __init__(self, link: BusLink, running_ids: Callable[[], tuple[str, ...]], clock: Clock, tasks: Tasks) -> None:
        self._link, self._running_ids, self._clock, self._tasks = link, running_ids, clock, tasks
        self._look_s = _LOOK_S[link.bus.hosted]
        self._seen: frozenset[str] = frozenset()
        self._listed_s = clock.steady_s()
        self._watching = False
        self._lock = threading.Lock()

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._seen

    def listed(self, run_ids: frozenset[str]) -> None:
        """Note the cancels that a listing shows."""
        self._seen, self._listed_s = run_ids, self._clock.steady_s()

    def watch(self) -> None:
        """Look for cancels as long as runs go on, unless that is done already."""
        with self._lock:
            if not self._watching:
                self._watching = True
                self._tasks.start(self._watch, "cancels")

    def _watch(self) -> None:
        link, nap = None, threading.Event()
        while True:
            self._tasks.wait(nap, self._look_s / 5)
            with self._lock:
                running = self._running_ids()
                if not running:
                    self._watching = False
                    return
            if self._clock.steady_s() - self._listed_s < self._look_s:
                continue
            try:
                link = link or self._link.beside()
                self.listed(link.bus.cancelled(running))
            except (InfrastructureError, OSError):
                continue  # the run goes on as long as its lease does
