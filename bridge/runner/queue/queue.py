"""The queue: claim what this runner may run, say once why the rest waits.

Its requests are those that no claim that counts holds. Knows nothing about recovery, leases or how a run goes.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial

from bridge.bus.views import ReceivedRequest, RequestRef
from bridge.errors import FencedError, InfrastructureError, RequestRejectedError
from bridge.records import Claim, Request
from bridge.request import UNSIGNED, parse
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import BusLink
from bridge.runner.queue.admission import Admission, NotTaken
from bridge.runner.run.claim_renewal import ClaimedRun
from bridge.runner.state.folder import OpenState
from bridge.runner.state.log import for_run
from bridge.system.clock import Clock, rfc3339


class Queue:
    """The queue as this runner sees it.

    Args:
        rules: what the owner allows.
        running_ids: returns the runs that are going on here.
        start: begins a run whose claim is held.
        stopping: set when the runner was asked to end now.
    """

    def __init__(
        self,
        rules: OwnerRules,
        state: OpenState,
        link: BusLink,
        running_ids: Callable[[], tuple[str, ...]],
        start: Callable[[ClaimedRun], None],
        *,
        clock: Clock,
        stopping: threading.Event,
        log: logging.Logger,
    ) -> None:
        self._rules, self._state, self._link = rules, state, link
        self._running_ids, self._start = running_ids, start
        self._clock, self._stopping, self._log = clock, stopping, log
        self._admission = Admission(rules, state, clock)
        self._told: dict[str, str] = {}
        self._not_ours: set[str] = set()

    def take(self, queue: list[RequestRef], forged: Mapping[str, str]) -> int:
        """Take what may be taken, in order; return how many requests this runner could still take later.

        Args:
            queue: requests without a claim that counts, oldest first.
            forged: tips, by run id, of claims on them that do not count.
        """
        waiting = 0
        oids = {ref.oid for ref in queue}
        self._not_ours &= oids
        self._told = {oid: reason for oid, reason in self._told.items() if oid in oids}
        for ref in queue:
            running = self._running_ids()
            if ref.id in running or ref.oid in self._not_ours:
                continue
            free = len(running) < self._rules.policy.slots
            blocked = self._admission.host_wait() if free else NotTaken("all slots are busy")
            if self._stopping.is_set() or self._state.folder.drain.exists():
                blocked = NotTaken("this runner is about to end")
            if blocked is None:
                try:
                    blocked = self._take(ref, forged.get(ref.id))
                except FencedError:
                    continue
                except InfrastructureError as error:
                    blocked = NotTaken(error.message)
            if blocked is not None:
                self._tell(ref, blocked.reason)
            if blocked is not None and blocked.permanent:
                self._not_ours.add(ref.oid)
            elif blocked is not None:
                waiting += 1
        return waiting

    def _take(self, ref: RequestRef, over: str | None) -> NotTaken | None:
        """Claim a request and start its run, or say why not; `over` is a claim on it that does not count.

        Raises:
            FencedError: another runner has it.
            InfrastructureError: the bus did not answer.
        """
        link, journal = self._link, self._state.journal
        received = self._receive(ref)
        request = self._peek(ref, received)
        preset = self._rules.presets.get(request.preset) if request is not None else None
        who = partial(self._quota_name, request, received)
        blocked = self._admission.request_wait(request, preset, who)
        if blocked is not None:
            return blocked
        claim = Claim(
            id=ref.id,
            request_oid=ref.oid,
            state="claimed",
            runner=self._rules.name,
            nonce=secrets.token_hex(16),
            sequence=0,
            lease_s=link.record.lease_s,
            phase="preparing",
            time=rfc3339(self._clock.now()),
        )
        journal.append("fetched", ref.id, ref.oid, nonce=claim.nonce)
        asked_s = self._clock.steady_s()
        with link.lock:
            # Who has it when this is fenced off, recovery finds out: perhaps we, late.
            held = link.bus.claim(claim, over)
        if over is not None:
            for_run(self._log, ref.id).warning("taken over the head of a claim that its runner did not sign")
        journal.append("claimed", ref.id, held.oid, principal=who())
        self._start(ClaimedRun(ref, held, received, claim.time, asked_s))
        return None

    def _tell(self, ref: RequestRef, reason: str) -> None:
        if self._told.get(ref.oid) != reason:
            self._told[ref.oid] = reason
            for_run(self._log, ref.id).info("waits: %s", reason)

    def _receive(self, ref: RequestRef) -> ReceivedRequest | None:
        """Return the pushed bytes, or None when there are none to read: whoever claims it publishes the rejection.

        Raises:
            FencedError: it is done already.
            RemoteError: the bus did not answer.
        """
        try:
            with self._link.lock:
                return self._link.bus.read_request(ref)
        except RequestRejectedError:
            return None

    def _peek(self, ref: RequestRef, received: ReceivedRequest | None) -> Request | None:
        """Return the request if it is one; whether it may run is judged after the claim."""
        if received is None:
            return None
        try:
            return parse(received.data, ref=ref.ref, bus_id=self._link.record.bus_id, now=self._clock.now())
        except RequestRejectedError:
            return None

    def _quota_name(self, request: Request | None, received: ReceivedRequest | None) -> str:
        """Return whose quota a request counts against."""
        if received is None:
            return UNSIGNED
        return self._rules.signers.quota_name(request, received.data, received.signature)
