"""Waiting requests as they were pushed, kept by their commit, and whose turn is next.

Each is fetched once and its signature verified once, within the budget of a step. Those whose signature holds have
shares by principal; all others share one. Decides nothing about what may run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import ReceivedRequest, RequestRef
from bridge.errors import RequestRejectedError
from bridge.records.request import Request
from bridge.request import UNSIGNED, parse
from bridge.runner.authorisation.rules_in_force import RulesInForce
from bridge.runner.connection.link import BusLink
from bridge.runner.state.journal import Journal
from bridge.system.clock import Clock

_HOUR: Final = dt.timedelta(hours=1)


@dataclass(frozen=True)
class WaitingRequest:
    """A request that was read.

    Attributes:
        ref: its branch.
        received: its bytes; None where what is pushed is no request, which whoever claims it says in a result.
        request: what it asks, None where it is malformed.
        principal: whose share and quota it counts against.
    """

    ref: RequestRef
    received: ReceivedRequest | None
    request: Request | None
    principal: str


class Inbox:
    """The waiting requests of one bus as one runner knows them."""

    def __init__(self, rules: RulesInForce, journal: Journal, link: BusLink, clock: Clock) -> None:
        self._rules, self._journal, self._link, self._clock = rules, journal, link, clock
        self._received: dict[str, ReceivedRequest | None] = {}
        self._requests: dict[str, Request] = {}
        self._principals: dict[str, tuple[tuple[object, ...], str]] = {}
        self._done: set[str] = set()
        self._namesakes: dict[str, tuple[RequestRef, ...]] = {}

    def read(self, refs: Sequence[RequestRef], budget: WorkBudget) -> None:
        """Read those that are not known yet, as far as the budget goes; what is listed no more is forgotten.

        Branches that were found to have a run id of theirs are read too.

        Raises:
            RemoteError: the bus does not answer.
        """
        ids = {ref.id for ref in refs}
        self._namesakes = {run_id: found for run_id, found in self._namesakes.items() if run_id in ids}
        refs = self._with_namesakes(refs)
        listed = {ref.oid for ref in refs}
        self._received = {oid: one for oid, one in self._received.items() if oid in listed}
        self._requests = {oid: one for oid, one in self._requests.items() if oid in listed}
        self._principals = {oid: one for oid, one in self._principals.items() if oid in listed}
        self._done &= listed
        fresh = [ref for ref in refs if ref.oid not in self._received and ref.oid not in self._done]
        if not fresh:
            return
        with self._link.lock:
            found = self._link.bus.read_requests(fresh, budget)
        self._received |= found.received
        self._received |= dict.fromkeys(found.rejected)
        self._done |= found.done

    def in_turn(
        self, refs: Sequence[RequestRef], budget: WorkBudget, *, whole: bool = True
    ) -> Iterator[WaitingRequest]:
        """Yield the requests that were read, always of the principal that was served least in the last hour.

        What is no request comes last: it only wants to be told so. Verifying a signature is work too: what the budget
        does not reach is not yielded.

        Args:
            refs: the listed branches.
            budget: signatures that may be verified.
            whole: whether all branches were listed; otherwise the bus is asked once for others with the run id of one
                that is not signed, and where there are any it has to wait until they are read.

        Raises:
            RemoteError: the bus does not answer.
        """
        waiting: dict[str, list[WaitingRequest]] = {}
        malformed: list[WaitingRequest] = []
        refs = self._with_namesakes(refs)
        for one in self._alone(list(self._that_count(refs, budget)), () if whole else refs):
            if one.request is None:
                malformed.append(one)
            else:
                waiting.setdefault(one.principal, []).append(one)
        since = self._clock.now() - _HOUR
        served = {name: self._journal.claims_since(since, name) for name in waiting}
        while waiting:
            name = min(waiting, key=lambda one: (served[one], waiting[one][0].ref.id))
            yield waiting[name].pop(0)
            served[name] += 1
            if not waiting[name]:
                del waiting[name]
        yield from malformed

    def is_done(self, ref: RequestRef) -> bool:
        """Return whether a branch was found to carry a result already."""
        return ref.oid in self._done

    def _with_namesakes(self, refs: Sequence[RequestRef]) -> list[RequestRef]:
        """Return branches and those that were found to have a run id of theirs, each once, oldest id first."""
        found = {ref.ref: ref for same in self._namesakes.values() for ref in same}
        return sorted((found | {ref.ref: ref for ref in refs}).values(), key=lambda one: (one.id, one.ref))

    def _alone(self, found: list[WaitingRequest], refs: Sequence[RequestRef]) -> Iterator[WaitingRequest]:
        """Yield those of which no branch with their run id is missing in a window's, as one whose signature holds."""
        ids = {one.ref.id for one in found if one.principal == UNSIGNED} if refs else set()
        unsure = ids - self._namesakes.keys()
        if unsure:
            with self._link.lock:
                listed = self._link.bus.requests_of(unsure)
            for run_id in unsure:
                self._namesakes[run_id] = tuple(ref for ref in listed if ref.id == run_id)
        known = {ref.ref for ref in refs}
        for one in found:
            if one.ref.id not in unsure or all(ref.ref in known for ref in self._namesakes[one.ref.id]):
                yield one

    def _that_count(self, refs: Sequence[RequestRef], budget: WorkBudget) -> Iterator[WaitingRequest]:
        """Yield what was read; of several branches with one run id, as anybody may push another's, no more than one.

        That is the first whose signature holds, else the first that is a request; what is none counts where no other
        branch could be one.
        """
        by_id: dict[str, list[RequestRef]] = {}
        for ref in refs:
            if ref.oid not in self._done:
                by_id.setdefault(ref.id, []).append(ref)
        for same in by_id.values():
            read = [ref for ref in same if ref.oid in self._received]
            found = [one for ref in read if (one := self._waiting(ref, budget)) is not None]
            asked = [one for one in found if one.request is not None]
            if len(found) == len(read) and (asked or len(read) == len(same)):
                yield min(asked or found, key=lambda one: one.principal == UNSIGNED)

    def _waiting(self, ref: RequestRef, budget: WorkBudget) -> WaitingRequest | None:
        received = self._received[ref.oid]
        if received is None:
            return WaitingRequest(ref, None, None, UNSIGNED)
        request = self._requests.get(ref.oid)
        if request is None:
            try:
                now = self._clock.now()
                request = parse(received.data, ref=ref.ref, bus_id=self._link.record.bus_id, now=now)
            except RequestRejectedError:
                return WaitingRequest(ref, received, None, UNSIGNED)
            self._requests[ref.oid] = request
        principal = self._principal(request, received, budget)
        return None if principal is None else WaitingRequest(ref, received, request, principal)

    def _principal(self, request: Request, received: ReceivedRequest, budget: WorkBudget) -> str | None:
        """Return whose share a request has; None where finding out has to wait."""
        if received.signature is None:
            return UNSIGNED
        signers = self._rules.now.signers
        stamp = (signers, *signers.stamp())  # another policy has its own
        known = self._principals.get(received.ref.oid)
        if known is None or known[0] != stamp:
            if not budget.take():
                return None
            name = signers.quota_name(request, received.data, received.signature)
            known = self._principals[received.ref.oid] = (stamp, name)
        return known[1]
