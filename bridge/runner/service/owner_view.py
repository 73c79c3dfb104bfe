"""Write down what the owner looks at while a runner serves: its queue, and figures for a node exporter.

The figures are in Prometheus's text format (prometheus.io, "Exposition formats", version 0.0.4), for the textfile
collector: a file that is replaced whole. Neither file decides anything, and a disk that refuses them ends nothing.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bridge.run.outcomes import RunOutcome
from bridge.runner.policy.model import Policy
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.waiting import SHOWN_MAX_COUNT, QueueView, Waiting, write_queue
from bridge.system.clock import Clock, rfc3339
from bridge.system.durable import write_atomically

EVERY_S: Final = 30.0
_READABLE: Final = 0o644


class OwnerView:
    """The files of one runner.

    Args:
        policy: whether there are figures, and where.
        slots: how many runs go on at once.
        running: returns the runs that go on.
        outcomes: returns what came of the runs so far.
    """

    def __init__(
        self,
        policy: Policy,
        folder: StateFolder,
        slots: int,
        *,
        running: Callable[[], tuple[str, ...]],
        outcomes: Callable[[], tuple[RunOutcome, ...]],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._name, self._slots, self._folder = policy.name, slots, folder
        self._metrics = None if policy.metrics is None else Path(policy.metrics)
        self._running, self._outcomes, self._clock, self._log = running, outcomes, clock, log
        self._written: object = None
        self._due_s = float("-inf")
        self._failed = ""

    def look(self, waiting: tuple[Waiting, ...], not_taking: str = "") -> None:
        """Write what has changed, and the time at least twice a minute.

        Args:
            waiting: the requests that are not taken, oldest first.
            not_taking: why nothing is taken because of the policy file; empty where it does not say so.
        """
        now_s = self._clock.steady_s()
        news = (waiting, not_taking, self._running(), len(self._outcomes()))
        if news == self._written and now_s < self._due_s:
            return
        try:
            shown = waiting[:SHOWN_MAX_COUNT]
            more = len(waiting) - len(shown)
            view = QueueView(time=rfc3339(self._clock.now()), requests=shown, more=more, not_taking=not_taking)
            write_queue(self._folder.queue, view)
            if self._metrics is not None:
                text = "".join(f"{line}\n" for line in self._figures(len(waiting)))
                write_atomically(self._metrics, text.encode(), durable=False, mode=_READABLE)
            self._failed = ""
        except OSError as error:
            if str(error) != self._failed:
                self._log.warning("what the owner looks at cannot be written: %s", error)
            self._failed = str(error)
        self._written, self._due_s = news, now_s + EVERY_S

    def _figures(self, waiting: int) -> Iterator[str]:
        name, label = self._name, f'{{runner="{self._name}"}}'
        free = shutil.disk_usage(self._folder.root).free
        for figure, about, value in (
            ("runs_running", "Runs that go on.", len(self._running())),
            ("runs_waiting", "Requests that this runner could take later.", waiting),
            ("slots", "Runs that may go on at once.", self._slots),
            ("disk_free_bytes", "Free bytes where the runner keeps its state.", free),
            ("updated_timestamp_seconds", "When this file was written.", round(self._clock.now().timestamp())),
        ):
            yield f"# HELP kakeya_{figure} {about}"
            yield f"# TYPE kakeya_{figure} gauge"
            yield f"kakeya_{figure}{label} {value}"
        yield "# HELP kakeya_runs_ended_total Runs that ended since this runner started, by how they ended."
        yield "# TYPE kakeya_runs_ended_total counter"
        for reason, count in sorted(Counter(one.ending.reason for one in self._outcomes()).items()):
            yield f'kakeya_runs_ended_total{{runner="{name}",reason="{reason}"}} {count}'
