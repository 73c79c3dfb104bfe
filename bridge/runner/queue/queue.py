"""The queue: claim what this runner may run, say once why the rest waits.

Its requests are those that no claim that counts holds. Knows nothing about recovery, leases or how a run goes.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import RequestRef
from bridge.errors import BegunError, FencedError, InfrastructureError, RemoteError
from bridge.ids import unix_ms
from bridge.limits import STEP_REQUEST_FETCHES, STEP_SIGNATURES_COUNT
from bridge.records.claim import Claim
from bridge.records.request import Request
from bridge.request import UNSIGNED
from bridge.run.outcomes import one_line
from bridge.runner.authorisation.rules_in_force import RulesInForce
from bridge.runner.connection.link import BusLink
from bridge.runner.queue.admission import Admission, NotTaken
from bridge.runner.queue.clock_watch import ClockWatch
from bridge.runner.queue.elsewhere import runs_elsewhere
from bridge.runner.queue.inbox import Inbox, WaitingRequest
from bridge.runner.run.claim_renewal import ClaimedRun
from bridge.runner.run.slots import RunSlots
from bridge.runner.state.database import Fact
from bridge.runner.state.folder import OpenState
from bridge.runner.state.log import for_run
from bridge.runner.state.waiting import Waiting
from bridge.system.clock import Clock, parse_rfc3339, rfc3339

_BEFORE: Final = (
    "it was sent before this runner's state was lost, and the bus does not say what had run by then: kakeya-mac retry "
    "{run_id} sends it again"
)
_KEY_GONE: Final = (
    "the key of this runner is gone from {folder}: kakeya-runner keygen makes another, and the bus's owner adds what "
    "that prints: kakeya-runner trust add {name}=KEY --bus ROUTE"
)


class Queue:
    """The queue as this runner sees it.

    Args:
        rules: what the owner allows.
        running_ids: returns the runs that are going on here.
        start: begins a run whose claim is held.
        look: begins to look at the code that a run is about to need, while its claim is on its way.
        slots: how many runs go on at once.
        clocks: how the wall clock compares with others.
        is_ending: returns whether the runner was asked to end.
        refusal: returns why nothing is taken because of who this runner is, None where nothing speaks against it.
    """

    def __init__(
        self,
        rules: RulesInForce,
        state: OpenState,
        link: BusLink,
        running_ids: Callable[[], tuple[str, ...]],
        start: Callable[[ClaimedRun], None],
        *,
        look: Callable[[], None],
        slots: RunSlots,
        clocks: ClockWatch,
        clock: Clock,
        is_ending: Callable[[], bool],
        refusal: Callable[[], str | None],
        log: logging.Logger,
    ) -> None:
        self._rules, self._state, self._link = rules, state, link
        self._running_ids, self._start, self._look, self._slots = running_ids, start, look, slots
        self._clocks, self._clock, self._is_ending, self._refusal, self._log = clocks, clock, is_ending, refusal, log
        self._admission = Admission(rules, state, clock)
        self._inbox = Inbox(rules, state.journal, link, clock)
        self._beacons: Mapping[str, str] = {}
        self._elsewhere: Mapping[str, str] | None = None  # read once a listing, and only where something may be taken
        self._told: dict[str, str] = {}
        self._waiting: tuple[Waiting, ...] = ()
        self._stumbled: str | None = None
        self._not_ours: set[str] = set()
        self._archived: set[str] = set()

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The requests that could still be taken, as they were after the last `take`, with the reason."""
        return self._waiting

    @property
    def stumbled(self) -> str | None:
        """The run that the last `take` could not claim, or not see claimed, for a cause that passes."""
        return self._stumbled

    def take(
        self,
        queue: list[RequestRef],
        forged: Mapping[str, str],
        beacons: Mapping[str, str],
        *,
        whole: bool,
        only: str | None = None,
    ) -> int:
        """Take what may be taken, each principal in turn; return how many requests could still be taken later.

        Args:
            queue: requests without a claim that counts, oldest first.
            forged: tips, by run id, of claims on them that do not count.
            beacons: tips, by runner name, of the same listing: what another says it runs is not taken.
            whole: whether the queue is of all branches, not of those that a window shows.
            only: full name of the one branch to take, where the queue holds it and others with its run id.

        Raises:
            RemoteError: the bus does not answer.
        """
        self._beacons, self._elsewhere, self._stumbled = beacons, None, None
        left = self._take_in_turn(queue, forged, whole=whole, only=only)
        self._waiting = tuple(Waiting(id=ref.id, why=one_line(self._told.get(ref.oid, ""))) for ref in left)
        return len(left)

    def _take_in_turn(
        self, queue: list[RequestRef], forged: Mapping[str, str], *, whole: bool, only: str | None
    ) -> list[RequestRef]:
        oids = {ref.oid for ref in queue}
        self._not_ours &= oids
        self._archived &= {ref.id for ref in queue}
        self._told = {oid: reason for oid, reason in self._told.items() if oid in oids}
        busy = {*self._running_ids(), *self._archived}
        shared = Counter(ref.id for ref in queue)
        # One that is not ours is still looked at where another branch has its id: that one is not taken in its place.
        wanted = [ref for ref in queue if ref.id not in busy and (shared[ref.id] > 1 or ref.oid not in self._not_ours)]
        blocked = self._blocked()
        if blocked is not None:
            for ref in wanted:
                self._tell(ref, blocked.reason)
            return wanted
        self._inbox.read(wanted, WorkBudget(STEP_REQUEST_FETCHES, self._is_ending))
        waiting = {ref.oid for ref in wanted if not self._inbox.is_done(ref)}
        signatures = WorkBudget(STEP_SIGNATURES_COUNT, self._is_ending)
        for one in self._inbox.in_turn(wanted, signatures, whole=whole):
            if shared[one.ref.id] > 1 or one.ref.oid not in waiting:
                waiting -= {ref.oid for ref in wanted if ref.id == one.ref.id and ref.oid != one.ref.oid}
            if one.request is not None and one.principal != UNSIGNED:
                self._clocks.saw_request(one.principal, one.ref.oid, one.request.created)
            if only is not None and one.ref.ref != only:
                self._tell(one.ref, f"its run id is that of {only}, and it counts instead of that one")
                continue
            wait = self._blocked() or self._tried(one, forged.get(one.ref.id))
            if wait is None or wait.permanent:
                waiting.discard(one.ref.oid)
            if wait is not None:
                self._tell(one.ref, wait.reason)
            if wait is not None and wait.permanent:
                self._not_ours.add(one.ref.oid)
        return [ref for ref in wanted if ref.oid in waiting]

    def _blocked(self) -> NotTaken | None:
        """Return why this runner takes nothing at all now, or None."""
        if self._is_ending() or self._state.folder.drain.exists():
            return NotTaken("this runner is about to end")
        if (refusal := self._refusal() or self._clocks.wrong) is not None:
            return NotTaken(refusal)
        if self._link.signs and not self._state.attesting.has_key:
            return NotTaken(_KEY_GONE.format(folder=self._state.folder.identity, name=self._rules.now.name))
        if len(self._running_ids()) >= self._slots.count:
            return NotTaken("all slots are busy")
        return self._admission.host_wait()

    def _tried(self, one: WaitingRequest, over: str | None) -> NotTaken | None:
        """Take one request; return why it has to wait, None when it is taken, by us or by another runner."""
        try:
            return self._take(one, over)
        except FencedError:
            return None
        except InfrastructureError as error:
            if isinstance(error, RemoteError) and error.is_passing:
                self._stumbled = one.ref.id
            return NotTaken(error.line)

    def _take(self, one: WaitingRequest, over: str | None) -> NotTaken | None:
        """Claim a request and start its run, or say why not; `over` is a claim on it that does not count.

        Raises:
            FencedError: another runner has it.
            InfrastructureError: the bus did not answer.
        """
        link, journal, ref, request = self._link, self._state.journal, one.ref, one.request
        if (blocked := self._not_now(one)) is not None:
            return blocked
        claim = Claim(
            id=ref.id,
            request_oid=ref.oid,
            state="claimed",
            runner=self._rules.now.name,
            nonce=secrets.token_hex(16),
            sequence=0,
            lease_s=link.budget.lease_s(),
            phase="preparing",
            time=rfc3339(self._clock.now()),
        )
        journal.append("fetched", ref.id, ref.oid, nonce=claim.nonce)
        self._admission.begin(request)
        asked_s = self._clock.steady_s()
        self._look()
        try:
            with link.lock:
                # Who has it when this is fenced off, recovery finds out: perhaps we, late.
                held = link.bus.claim(claim, over)
        except BegunError as error:
            return NotTaken(error.message)
        link.budget.measured(self._clock.steady_s() - asked_s)
        if over is not None:
            for_run(self._log, ref.id).warning("taken over the head of a claim that its runner did not sign")
        asked = None if request is None else request.preset
        journal.append("claimed", ref.id, held.oid, principal=one.principal, preset=asked)
        self._start(ClaimedRun(ref, held, one.received, claim.time, asked_s))
        return None

    def _not_now(self, one: WaitingRequest) -> NotTaken | None:
        """Return why a request is not claimed now, None where it may be.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        link, ref, request = self._link, one.ref, one.request
        preset = self._rules.now.presets.get(request.preset) if request is not None else None
        blocked = self._admission.request_wait(request, preset, one.principal)
        if blocked is not None:
            return blocked
        if self._looks_expired(request) and (doubt := self._clocks.doubt) is not None:
            return NotTaken(f"by this clock it cannot run any more, and {doubt}")
        if self._is_before_takes_since(ref.id):
            return NotTaken(_BEFORE.format(run_id=ref.id), permanent=True)
        with link.lock:
            archived = link.bus.is_archived(ref.id)
        if archived:
            self._archived.add(ref.id)
            return NotTaken("a run with its id ended before and was archived", permanent=True)
        if self._elsewhere is None:
            self._elsewhere = runs_elsewhere(link, self._rules.now.name, self._beacons, self._clock)
        if ref.id in self._elsewhere:
            return NotTaken(f"runner {self._elsewhere[ref.id]} says that it has it, although no claim is there")
        return None

    def _looks_expired(self, request: Request | None) -> bool:
        """Return whether a request is refused for its time by this clock, or for something that may be its time."""
        return request is None or self._rules.now.valid_until(request) <= self._clock.now()

    def _is_before_takes_since(self, run_id: str) -> bool:
        """Return whether a request is older than the start at which state and bus had both lost what had run."""
        since = self._state.database.fact(Fact.TAKES_SINCE)
        return since is not None and unix_ms(run_id) < parse_rfc3339(since).timestamp() * 1000

    def _tell(self, ref: RequestRef, reason: str) -> None:
        if self._told.get(ref.oid) != reason:
            self._told[ref.oid] = reason
            for_run(self._log, ref.id).info("waits: %s", reason)
