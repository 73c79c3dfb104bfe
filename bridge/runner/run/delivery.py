"""Deliver a built result: one compare-and-swap that ends the run, a copy on the request branch, word to the site.

Every step is in the journal before the next begins, so any of them can be repeated after a crash. A notification that
a crash interrupted is given again by the next runner, so the site has to bear a repetition. The owner's notify program
is handed results in their order and runs beside all this: one that it had not told of when the runner crashed is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pydantic

from bridge.bus.views import HeldClaim, LogChunk, RequestRef
from bridge.errors import FencedError, GivenUpError, InfrastructureError, IntegrityError
from bridge.records.claim import Delivery
from bridge.records.request import Request
from bridge.run.outcomes import Ending
from bridge.runner.actions.announce import RunAnnouncement, announce_nothing
from bridge.runner.connection.link import BusLink
from bridge.runner.connection.rests import Rests
from bridge.runner.run.claim_renewal import following
from bridge.runner.state.history import PENDING_NOTIFICATION, JournalStage
from bridge.runner.state.journal import Journal
from bridge.runner.state.log import for_run
from bridge.strictjson import StrictJsonError
from bridge.system.clock import Clock

_TRIES = 3
_REST_S = (5.0, 300.0)


class Spool:
    """What was built and could not be delivered yet, and when it is tried again.

    Args:
        journal: says what was built and what landed.
        running: returns ids of runs that are going on, whose results are not late yet.
    """

    def __init__(self, journal: Journal, clock: Clock, running: Callable[[], tuple[str, ...]]) -> None:
        self._journal, self._running = journal, running
        self._rests = Rests(clock, *_REST_S)

    def waiting(self) -> tuple[str, ...]:
        """Return the runs whose results have not landed."""
        running = set(self._running())
        found = (one.id for one in self._journal.histories() if one.stage == JournalStage.BUILT)
        return tuple(run_id for run_id in found if run_id not in running)

    def resting(self) -> tuple[str, ...]:
        """Return those that are not to be tried now; each try that fails doubles the rest."""
        waiting = self.waiting()
        self._rests.forget_but(waiting)
        resting = self._rests.resting()
        return tuple(run_id for run_id in waiting if run_id in resting)

    def tried(self, resting: tuple[str, ...]) -> None:
        """Note that all but the resting ones were tried just now."""
        for run_id in self.waiting():
            if run_id not in resting:
                self._rests.failed(run_id)


class ResultDelivery:
    """Delivers the results of one runner.

    Args:
        name: the runner's name.
        journal: takes each step.
        announce: tells the hosting site of a result, as far as the policy says so.
    """

    def __init__(
        self,
        name: str,
        journal: Journal,
        link: BusLink,
        *,
        clock: Clock,
        log: logging.Logger,
        announce: Callable[[RunAnnouncement], None] = announce_nothing,
    ) -> None:
        self._name, self._journal, self._link = name, journal, link
        self._clock, self._log, self._announce = clock, log, announce

    def over(self, link: BusLink) -> ResultDelivery:
        """Return the same delivery over another link."""
        return ResultDelivery(
            self._name, self._journal, link, clock=self._clock, log=self._log, announce=self._announce
        )

    def deliver(
        self,
        ref: RequestRef,
        held: HeldClaim,
        ending: Ending,
        result_oid: str,
        *,
        log: LogChunk | None = None,
        tries: int = _TRIES,
    ) -> Delivery:
        """End the run and copy its result; ``spooled`` when the remote did not take it, to be tried again later.

        The end of the run's log goes along where it was not sent yet.

        Raises:
            FencedError: another runner ended the run; nothing of ours was written.
        """
        claim = following(
            held, self._clock, state="terminal", phase=None, runner=self._name, reason=ending.reason,
            message=ending.message, exit_code=ending.exit_code, result_oid=result_oid,
        )  # fmt: skip
        for attempt in range(tries):
            try:
                with self._link.lock:
                    # What could not be sent of the log, the bus keeps and sends with the next try.
                    ended = self._link.bus.publish(held, claim, log=None if attempt else log)
            except FencedError as error:
                self._put_back(held)  # somebody deleted it, and another may have claimed the run meanwhile
                self._retry_later(ref, "published", error, attempt, tries)
            except InfrastructureError as error:
                self._retry_later(ref, "published", error, attempt, tries)
            else:
                self._journal.append("terminal", ref.id, ended.oid)
                return self.copy(ref, result_oid, tries=tries)
        return "spooled"

    def _put_back(self, held: HeldClaim) -> None:
        """Put a claim back that was deleted; what cannot be done now comes with the next try.

        Raises:
            FencedError: it was not deleted.
        """
        try:
            with self._link.lock:
                self._link.bus.put_back(held)
        except FencedError:
            raise
        except InfrastructureError as error:
            for_run(self._log, held.claim.id).debug("its claim is not put back yet: %s", error.message)

    def copy(self, ref: RequestRef, result_oid: str | None, *, tries: int = _TRIES) -> Delivery:
        """Append the published result to the request branch; what cannot be copied now is copied by recovery."""
        if result_oid is None:
            self._journal.append("copied", ref.id, None, delivery="branch_moved")
            return "branch_moved"
        for attempt in range(tries):
            try:
                with self._link.lock:
                    delivery = self._link.bus.copy_result(ref, result_oid)
            except InfrastructureError as error:
                self._retry_later(ref, "copied to its branch", error, attempt, tries)
            else:
                self._journal.append("copied", ref.id, result_oid, delivery=delivery, **self._pending(ref))
                return delivery
        return "spooled"

    def _retry_later(self, ref: RequestRef, what: str, error: InfrastructureError, attempt: int, tries: int) -> None:
        """Log a failed try, and wait before the next, which fails at once where the runner is to end."""
        for_run(self._log, ref.id).warning("result not %s yet: %s", what, error.message)
        if attempt + 1 < tries and not isinstance(error, GivenUpError):
            self._clock.sleep(min(2.0**attempt, 10.0))

    def notify(self, ended: RunAnnouncement) -> None:
        """Notify the hosting site of a result and note that it is done."""
        self._announce(ended)
        self._notified(ended.ref.id)

    def notify_after_crash(self, ref: RequestRef, ending: Ending, result_oid: str) -> None:
        """Notify of a result as it was published; while it cannot be read, its notification stays pending."""
        log = for_run(self._log, ref.id)
        try:
            with self._link.lock:
                files = self._link.bus.read_result(result_oid).files
        except InfrastructureError as error:
            log.warning("delivered, but its result cannot be read to notify of it: %s", error.message)
            return
        except IntegrityError as error:
            log.warning("delivered, but nobody is notified of it: %s", error.message)
            self._notified(ref.id)
            return
        self.notify(RunAnnouncement(ref, self._link.bus.route, _request(files), ending, files))

    def _pending(self, ref: RequestRef) -> dict[str, str]:
        """Return what the journal keeps of a delivered run while its notification is pending."""
        if self._announce is announce_nothing:
            return {}
        return {PENDING_NOTIFICATION: "announcement", "ref": ref.ref, "request_oid": ref.oid}

    def _notified(self, run_id: str) -> None:
        if self._journal.of(run_id) is not None:  # else its copy was already its end
            self._journal.append("announced", run_id)


def _request(files: Mapping[str, bytes]) -> Request | None:
    """Return the request in a result, None where it is none."""
    try:
        return Request.parse(files.get("request.json", b""))
    except (StrictJsonError, pydantic.ValidationError):
        return None
