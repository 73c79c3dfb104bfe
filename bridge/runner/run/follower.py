"""Follow a run that was started to its end, or leave it to the next process of this runner.

Decides when a run is asked to end early, and writes down that it has ended. Starts nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from bridge.errors import LeftRunningError, RemoteError
from bridge.executor.interface import Execution, Hooks, LiveRun
from bridge.executor.removal import remove_tree
from bridge.limits import RESTART_GRACE_S
from bridge.runner.machine.identity import beside_installation
from bridge.runner.machine.machine import Machine
from bridge.runner.run.claim_renewal import ClaimRenewal
from bridge.runner.run.preparation import directory_of
from bridge.runner.run.sender import Sender
from bridge.runner.state.journal import Journal
from bridge.runner.state.log import RunLog


class RunFollower:
    """Follows one run of this host.

    Args:
        run_id: the run.
        handle: its folder.
        machine: what runs it.
        renewal: renews its claim, and takes its log.
        sender: who may have it ended.
        cancelled: returns whether somebody asked to cancel this run.
        stopping: set when the runner was asked to end now and its runs with it, as ``interrupted``.
        leaving: set when the runner was asked to end and to leave its runs to the next one.

    Attributes:
        revoked: why its sender no longer counts, or None.
        output: its whole log, once it has ended.
    """

    def __init__(
        self,
        run_id: str,
        handle: Path,
        machine: Machine,
        journal: Journal,
        *,
        renewal: ClaimRenewal,
        sender: Sender,
        cancelled: Callable[[], bool],
        stopping: threading.Event,
        leaving: threading.Event,
        log: RunLog,
    ) -> None:
        self.revoked: str | None = None
        self.output = b""
        self._id, self._handle, self._machine, self._journal = run_id, handle, machine, journal
        self._renewal, self._sender, self._log = renewal, sender, log
        self._cancelled, self._stopping, self._leaving = cancelled, stopping, leaving

    def hooks(self) -> Hooks:
        """Return how this runner takes part in the run while it goes on."""
        return Hooks(on_log=self._renewal.feed, should_stop=self._should_stop, on_progress=self._renewal.report)

    def follow(self, running: LiveRun) -> Execution:
        """Follow a run to its end, or leave it to the next process of this runner."""
        with self.leavable():
            seen = running.wait()
        return self.ended(seen)

    @contextmanager
    def leavable(self) -> Iterator[None]:
        """Keep the claim for the next process of this runner, where the run is left to it."""
        try:
            yield
        except LeftRunningError:
            self._log.info("goes on without this runner; to end it: kakeya-runner stop --runs")
            self._renew_for_restart()
            raise

    def _renew_for_restart(self) -> None:
        """Renew the claim for the time a restart may take; where that fails its lease holds as it is.

        Raises:
            FencedError: another runner moved the claim.
        """
        try:
            self._renewal.extend(RESTART_GRACE_S)
        except RemoteError as error:
            self._log.warning("its claim could not be renewed for the restart: %s", error.message)
        finally:
            self._renewal.stop()

    def ended(self, seen: Execution) -> Execution:
        """Write down that the run has ended, and send the rest of its log."""
        execution = self._adjusted(seen)
        remove_tree(directory_of(self._handle).root)
        detail = {"program_exit": execution.program_exit, "ending": execution.ending, "revoked": self.revoked}
        self._journal.append("exited", self._id, None, **detail)
        # A lease that ran out meanwhile takes nothing from what was measured: only who moved the claim decides.
        reports_bytes = sum(map(len, execution.reports.values()))
        self._renewal.finish("judging", result_bytes=len(execution.log) + reports_bytes)
        return execution

    def _adjusted(self, execution: Execution) -> Execution:
        """Add to what the executor saw what only the runner knows: why it asked for the end."""
        if execution.ending == "interrupted" and (why := self._renewal.lost()) is not None:
            execution = replace(execution, message=why)
        if execution.ending == "cancelled" and self.revoked is not None:
            execution = replace(execution, ending="revoked", message=f"stopped while it ran: {self.revoked}")
        self.output = execution.log
        return beside_installation(execution, self._machine.recent_code)

    def _should_stop(self) -> Literal["cancelled", "interrupted", "left"] | None:
        self.revoked = self.revoked or self._sender.no_longer()
        if self.revoked is not None or (self._cancelled() and self._sender.may_be_cancelled()):
            return "cancelled"
        if self._stopping.is_set() or self._renewal.lost() is not None:
            return "interrupted"
        return "left" if self._leaving.is_set() else None
