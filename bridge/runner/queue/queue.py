"""The queue: claim what this runner may run, say once why the rest waits.

Its requests are those that no claim that counts holds. Knows nothing about recovery, leases or how a run goes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial

from bridge.bus.views import RequestRef
from bridge.errors import FencedError, InfrastructureError
from bridge.records import Claim
from bridge.runner.connection.link import BusLink
from bridge.runner.host import Host
from bridge.runner.queue.admission import NotTaken, host_wait, request_wait
from bridge.runner.queue.reading import peek, quota_name, receive
from bridge.runner.queue.work import ClaimedRun
from bridge.system.clock import rfc3339


class Queue:
    """The queue as this runner sees it.

    Args:
        host: this runner's surroundings.
        link: the bus.
        running_ids: returns the runs that are going on here.
        start: begins a run whose claim is held.
    """

    def __init__(
        self, host: Host, link: BusLink, running_ids: Callable[[], tuple[str, ...]], start: Callable[[ClaimedRun], None]
    ) -> None:
        self._host, self._link = host, link
        self._running_ids, self._start = running_ids, start
        self._told: dict[str, str] = {}
        self._not_ours: set[str] = set()

    def look(self, queue: list[RequestRef], hostile: Mapping[str, str]) -> int:
        """Take what may be taken, in order; return how many requests this runner could still take later.

        Args:
            queue: requests without a claim that counts, oldest first.
            hostile: tips, by run id, of claims on them that do not count.
        """
        host = self._host
        waiting = 0
        oids = {ref.oid for ref in queue}
        self._not_ours &= oids
        self._told = {oid: reason for oid, reason in self._told.items() if oid in oids}
        for ref in queue:
            running = self._running_ids()
            if ref.id in running or ref.oid in self._not_ours:
                continue
            blocked = host_wait(host) if len(running) < host.policy.slots else NotTaken("all slots are busy")
            if host.stopping.is_set() or host.state.drain.exists():
                blocked = NotTaken("this runner is about to end")
            if blocked is None:
                try:
                    blocked = self._take(ref, hostile.get(ref.id))
                except FencedError:
                    continue
                except InfrastructureError as error:
                    blocked = NotTaken(error.message)
            if blocked is not None:
                self._tell(ref.oid, f"{ref.id[-8:]} waits: {blocked.reason}")
            if blocked is not None and blocked.ever:
                self._not_ours.add(ref.oid)
            elif blocked is not None:
                waiting += 1
        return waiting

    def _take(self, ref: RequestRef, over: str | None) -> NotTaken | None:
        """Claim a request and start its run, or say why not; `over` is a claim on it that does not count.

        Raises:
            FencedError: somebody else has it.
            InfrastructureError: the bus did not answer.
        """
        host, link = self._host, self._link
        received = receive(link, ref)
        request = peek(host, link, ref, received)
        preset = host.presets.get(request.preset) if request is not None else None
        who = partial(quota_name, host, request, received)
        blocked = request_wait(host, request, preset, who)
        if blocked is not None:
            return blocked
        claim = Claim(
            id=ref.id,
            request_oid=ref.oid,
            state="claimed",
            runner=host.name,
            nonce=secrets.token_hex(16),
            sequence=0,
            lease_s=link.record.lease_s,
            phase="preparing",
            time=rfc3339(host.clock.now()),
        )
        host.journal.append("fetched", ref.id, ref.oid, nonce=claim.nonce)
        asked_s = host.clock.steady_s()
        with link.lock:
            # Who has it when this is fenced off, recovery finds out: perhaps we, late.
            held = link.bus.claim(claim, over)
        if over is not None:
            host.say(f"{ref.id[-8:]} taken over the head of a claim that its runner did not sign")
        host.journal.append("claimed", ref.id, held.oid, principal=who())
        self._start(ClaimedRun(ref, held, received, claim.time, asked_s))
        return None

    def _tell(self, about: str, reason: str) -> None:
        if self._told.get(about) != reason:
            self._told[about] = reason
            self._host.say(reason)
