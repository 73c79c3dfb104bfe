"""Fold what this runner ended into archives now and then, beside the polling, and drop what its owner lets go."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Final

from bridge.bus.store.gather import WorkBudget
from bridge.errors import FencedError, InfrastructureError
from bridge.limits import ARCHIVE_EVERY_S, ARCHIVE_FIRST_S
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock
from bridge.system.tasks import Tasks

DAY_S: Final = 24 * 3600.0
_FETCHES: Final = 64  # of one round; what is left waits for the next


class Archiving:
    """The archives of one runner.

    Args:
        rules: the runner's name, and what its owner drops.
        link: the bus.
        clock: times the rounds.
        tasks: runs a round beside the polling.
        stopping: ends a round early.
        log: takes what happens.
    """

    def __init__(
        self,
        rules: OwnerRules,
        link: BusLink,
        *,
        clock: Clock,
        tasks: Tasks,
        stopping: threading.Event,
        log: logging.Logger,
    ) -> None:
        self._name, self._days = rules.name, rules.policy.drop_after_days
        self._link, self._clock, self._tasks = link, clock, tasks
        self._stopping, self._log = stopping, log
        self._due_s = clock.steady_s() + ARCHIVE_FIRST_S
        self._beside: BusLink | None = None
        self._going = False

    def look(self, ahead_s: float) -> None:
        """Begin a round when one is due; an embedded bus is its user's own folder and needs none.

        Args:
            ahead_s: by how many seconds this machine's clock may be ahead: nothing is old that is new by another one.
        """
        if self._link.record.wake == "embedded" or self._going or self._clock.steady_s() < self._due_s:
            return
        self._going = True
        self._tasks.start(partial(self._work, ahead_s), "archives")

    def _work(self, ahead_s: float) -> None:
        budget = WorkBudget(_FETCHES, self._stopping.is_set)
        try:
            if self._beside is None:
                self._beside = self._link.beside()
                self._beside.bus.stop_when(self._stopping.is_set)
            drop_after_s = None if self._days is None else self._days * DAY_S
            archived = self._beside.bus.archive(self._name, budget=budget, drop_after_s=drop_after_s, ahead_s=ahead_s)
            for ref in archived:
                self._log.debug("archived or dropped: %s", ref)
        except (InfrastructureError, FencedError) as error:
            self._log.warning("archives wait for the next round: %s", error.message)
        except Exception:  # noqa: BLE001 (nobody is above this thread; the runner goes on without archives)
            self._log.exception("a bug ended a round of archives")
        finally:
            self._due_s = self._clock.steady_s() + (ARCHIVE_FIRST_S if budget.calls <= 0 else ARCHIVE_EVERY_S)
            self._going = False
