"""List the bus, take what may be taken, finish what others left; the same for `serve`, `once` and embedded.

Order of a step: cancels, recovery of our own runs, abandoned runs of others, then the queue, oldest first.
Knows nothing about processes or formats.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Hashable
from functools import partial

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import ClaimTip, ClaimView, RequestRef
from bridge.errors import (
    FencedError,
    InfrastructureError,
    KakeyaError,
    LeftRunningError,
    RequestRejectedError,
    of_system,
)
from bridge.limits import STEP_CLAIM_FETCHES, STOP_RUNS_S
from bridge.pipeline import recover_once, run_once
from bridge.records.request import Request
from bridge.request import run_id_of
from bridge.run.outcomes import Ending, RunOutcome, one_line
from bridge.runner.actions.announce import RunAnnouncement, announce_nothing
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.authorisation.rules_in_force import RulesInForce
from bridge.runner.connection.link import BusLink
from bridge.runner.connection.listings import Listings
from bridge.runner.connection.pacing import PollPace
from bridge.runner.connection.rests import Rests
from bridge.runner.connection.root_keeper import RootKeeper
from bridge.runner.machine.machine import Machine
from bridge.runner.policy.policy_file import PolicyFile
from bridge.runner.queue.admission import Admission
from bridge.runner.queue.cancels import Cancels
from bridge.runner.queue.clock_watch import ClockWatch
from bridge.runner.queue.foreign_claims import ForeignClaims
from bridge.runner.queue.queue import Queue
from bridge.runner.run.claim_renewal import ClaimedRun, ClaimRenewal, following
from bridge.runner.run.delivery import ResultDelivery, Spool
from bridge.runner.run.session import ClaimedRunSession
from bridge.runner.run.slots import RunSlots
from bridge.runner.service.archiving import Archiving
from bridge.runner.service.beacons import BeaconSender
from bridge.runner.service.owner_view import OwnerView
from bridge.runner.service.recovery import Recovery
from bridge.runner.service.twins import Twins
from bridge.runner.service.upkeep import Upkeep
from bridge.runner.state.database import Fact
from bridge.runner.state.folder import RUNS_TOO, OpenState
from bridge.runner.state.log import for_run, mask_also
from bridge.system.clock import Clock
from bridge.system.tasks import THREADS, Task, Tasks

_MARKED_POLL_S = 0.5  # between two listings of it while these do not change
_REST_S = (1.0, 300.0)  # a run that this runner could not end is tried again after so long, then after twice as long


class Runner:
    """One runner on one bus; the caller holds its name lock.

    Args:
        rules: what the owner allows when it starts.
        machine: what runs jobs.
        stopping: set when the runner is asked to end now; what runs ends as ``interrupted``.
        leaving: set when it is asked to end and to leave what runs to the next start; None: nobody asks for that.
        log: takes what happens; the only way a runner talks.
        announce: tells the hosting site of a result.
        tasks: starts runs beside the polling, and waits.
        keeper: keeps the bus's root in its place; None on this machine's own bus.
        policy_file: where what the owner allows is read again; None: it does not change.
    """

    def __init__(
        self,
        rules: OwnerRules,
        machine: Machine,
        state: OpenState,
        link: BusLink,
        *,
        clock: Clock,
        stopping: threading.Event,
        log: logging.Logger,
        leaving: threading.Event | None = None,
        announce: Callable[[RunAnnouncement], None] = announce_nothing,
        tasks: Tasks = THREADS,
        keeper: RootKeeper | None = None,
        policy_file: PolicyFile | None = None,
    ) -> None:
        self._name, self._machine, self._link, self._tasks = rules.name, machine, link, tasks
        self._rules = RulesInForce(rules, policy_file, log, lambda policy: mask_also(log, policy.secrets.values()))
        self.state, self.clock, self.stopping, self.log = state, clock, stopping, log
        self.leaving = threading.Event() if leaving is None else leaving
        self._keeper = keeper
        self._pace = PollPace(clock, hosted=link.bus.hosted)
        self._foreign = ForeignClaims(link, clock)
        self._listings = Listings(rules.presets, self._unended_ids, clock, local=link.record.wake == "embedded")
        self._admission = Admission(self._rules, state, clock)
        self._delivery = ResultDelivery(rules.name, state.journal, link, clock=clock, log=log, announce=announce)
        self._recovery = Recovery(
            rules.name, state, link, delivery=self._delivery, executor=machine.executor, clock=clock, log=log
        )  # fmt: skip
        self._spool = Spool(state.journal, clock, self._running_ids)
        self._rests = Rests(clock, *_REST_S)
        self._twins = Twins(rules.name, state.database, link, clock=clock, log=log, remembers=state.folder.lasts)
        self._clocks = ClockWatch(rules.name, link, clock, log)
        self._beacons = BeaconSender(
            self._rules, machine, state.folder, link, running=self._running_ids, spooled=self._spool.waiting,
            quotas=self._admission.quotas, note=self._note_beacon, start=self._twins.start,
            not_taking=self._not_taking,
            clock=clock, stopping=stopping, log=log,
        )  # fmt: skip
        self._upkeep = Upkeep(link, clock=clock, tasks=tasks, is_ending=self.asked_to_end, log=log)
        self._archiving = Archiving(rules, link, clock=clock, tasks=tasks, stopping=stopping, log=log)
        self._slots = RunSlots(rules.policy.slots, machine.cards, state.folder.runs)
        self._active: dict[str, Task] = {}
        self._cancels = Cancels(link, self._running_ids, clock, tasks)
        self._outcomes: list[RunOutcome] = []
        self._left: int | None = None
        self._taken: str | None = None
        self._begins_later = False
        self._run_ended = threading.Event()
        self._mark: Hashable = None
        self._requests: list[RequestRef] = []
        self._lock = threading.Lock()
        self._queue = Queue(
            self._rules, state, link, self._running_ids, self._start, look=machine.code_watch.look, slots=self._slots,
            clocks=self._clocks, clock=clock, is_ending=self._takes_no_more, refusal=self._refusal, log=log,
        )  # fmt: skip
        self._view = OwnerView(
            rules.policy, state.folder, self._slots.count, running=self._running_ids, outcomes=lambda: self.outcomes,
            clock=clock, log=log,
        )  # fmt: skip
        link.bus.stop_when(self.asked_to_end)
        self._recovery.sweep()

    @property
    def busy(self) -> bool:
        """Whether a run is going on."""
        with self._lock:
            return bool(self._active)

    @property
    def outcomes(self) -> tuple[RunOutcome, ...]:
        """What came of the runs so far."""
        with self._lock:
            return tuple(self._outcomes)

    @property
    def is_watching(self) -> bool:
        """Whether it takes nothing yet, as it does not know whether another runner of its name lives."""
        return self._twins.is_watching

    @property
    def took_one(self) -> bool:
        """Whether the request that `take_one` allows was begun."""
        return self._left == 0

    @property
    def unended(self) -> tuple[str, ...]:
        """The runs of this runner that are not delivered yet."""
        return self._unended_ids()

    @property
    def taken(self) -> str | None:
        """The run that a runner of one request took; None before."""
        return self._taken

    @property
    def held_up(self) -> str | None:
        """The run that it took, or was to take, where that waits for a remote that only stumbled."""
        return self._taken if self._begins_later else self._queue.stumbled

    def take_one(self) -> None:
        """Begin no more than one run from now on; what was begun before is ended all the same."""
        self._left = 1

    def step(self, only: str | None = None) -> int:
        """List the bus once and act on it; return how many requests this runner could still take later.

        Args:
            only: full name of the one request branch to take, or None for all. Others with its run id are looked at.

        Raises:
            InfrastructureError: the bus cannot be listed.
            TwinError: another runner of this name lives, and this one has just started.
            BusMovedError: the bus is at another remote; what goes on here is for the next start, which serves that.
        """
        self._rules.look()
        window = None if only is not None else self._listings.next_window()
        began_s = self.clock.steady_s()
        with self._link.lock:
            self._mark = self._link.bus.mark()
            snapshot = self._link.bus.snapshot(window)
        took_s = self.clock.steady_s() - began_s
        self._listings.listed(window, snapshot)
        if self._keeper is not None:
            self._keeper.tend()
        self._twins.look(snapshot.beacons)
        if self._twins.is_watching:  # what this state knows of may be going on with the other
            self._pace.listed(ok=True, took_s=took_s)
            return len(snapshot.requests)
        self._clocks.look(snapshot.beacons, [ref.oid for ref in snapshot.requests])
        self._cancels.listed(snapshot.cancels)
        requests = [ref for ref in snapshot.requests if only is None or ref.id == run_id_of(only)]
        refs = {ref.id: ref for ref in requests}
        self._requests = requests
        resting = self._spool.resting()
        self._rests.forget_but({*self._unended_ids(), *snapshot.claims})
        active = {*self._running_ids(), *resting, *self._rests.resting()}
        for left in self._recovery.recover(refs, snapshot.claims, active):
            if left.resume and self._rules.look() is not None:
                continue  # only claimed: it is let in when it begins, and nothing is now
            try:
                self._go_on(left.ref, left.view, resume=left.resume)
            except FencedError:
                self._recovery.fenced(left.ref.id)
        self._spool.tried(resting)
        running = self._running_ids()
        foreign = {run_id: oid for run_id, oid in snapshot.claims.items() if run_id in refs and run_id not in running}
        self._foreign.look(foreign, WorkBudget(STEP_CLAIM_FETCHES, self._is_ending))
        self._take_over_expired(refs)
        forged = self._foreign.not_counting()
        free = [ref for ref in requests if ref.id not in snapshot.claims or ref.id in forged]
        if self.state.folder.lasts and not self.busy:  # before the next run begins: some runners never idle
            self._upkeep.look(len(self._outcomes))
        waiting = self._queue.take(free, forged, snapshot.beacons, whole=window is None, only=only)
        self._beacons.saw_queue(waiting)
        problem = self._rules.problem
        why = self._clocks.wrong or self._moving() if problem is None else problem.reason
        self._view.look(self._queue.waiting, one_line(why or ""))
        self._beacons.send()
        if self.state.folder.lasts:
            self._archiving.look(self._clocks.ahead_s)
        self._pace.listed(ok=True, took_s=took_s)
        return waiting

    def wait(self, until_s: float | None = None) -> None:
        """Wait until the next listing is due, a run ends, or the runner is asked to stop.

        While nothing runs, what is new on a bus of this machine's own ends the wait as well.

        Args:
            until_s: steady time at which it ends at the latest; None for no such time.
        """
        marked = self._mark is not None and not self.busy
        slice_s = self._pace.glance_s() if marked else self._tasks.glance_s
        wait_s = self._pace.wait_s(busy=self.busy)
        due_s = self.clock.steady_s() + (max(wait_s, _MARKED_POLL_S) if marked else wait_s)
        due_s = due_s if until_s is None else min(due_s, until_s)
        while (left_s := due_s - self.clock.steady_s()) > 0 and not self._run_ended.is_set():
            if self.asked_to_end() or self._tasks.wait(self.stopping, min(left_s, slice_s)):
                break
            if marked and self._link.bus.mark() != self._mark:
                break
        self._run_ended.clear()

    def asked_to_end(self) -> bool:
        """Whether the runner is to end now, by a signal or by a file that the owner's command wrote."""
        with contextlib.suppress(OSError):
            (self.stopping if self.state.folder.stop.read_text("ascii") == RUNS_TOO else self.leaving).set()
        return self._is_ending()

    def _is_ending(self) -> bool:
        return self.stopping.is_set() or self.leaving.is_set()

    def _takes_no_more(self) -> bool:
        return self._is_ending() or self.took_one

    def failed(self) -> None:
        """Note that the bus could not be listed, so that the next listing comes later."""
        self._pace.listed(ok=False)

    def tend(self) -> None:
        """Pack and prune this runner's copies of the bus, for one that never idles."""
        self._upkeep.work()

    def announce_end(self) -> None:
        """Send the last beacon: this runner takes nothing any more."""
        if not self.leaving.is_set():  # ending the runs took its time, and the beacon has its own
            self._link.bus.stop_when(self.asked_to_end)
        self._beacons.send(last=True)

    def withdraw(self) -> None:
        """Take this runner's sign of life off the bus: it will not come back under this name."""
        self._link.bus.stop_when(self.asked_to_end)
        self._beacons.withdraw()

    def join(self) -> None:
        """Wait for the runs that are going on; for those that are left to the next start no longer than a moment.

        What a thread is about to do then is in the journal, as if the runner had crashed.
        """
        with self._lock:
            tasks = list(self._active.values())
        until_s = None
        while self.busy:
            if until_s is None and self.leaving.is_set() and not self.stopping.is_set():
                until_s = self.clock.steady_s() + STOP_RUNS_S
            if until_s is not None and self.clock.steady_s() >= until_s:
                return
            self._tasks.wait(self._run_ended, self._tasks.glance_s)
            self._run_ended.clear()
        for task in tasks:
            task.join()

    def _take_over_expired(self, refs: dict[str, RequestRef]) -> None:
        """Take over what another runner only claimed, finalise what it started, once its lease has run out."""
        budget = WorkBudget(STEP_CLAIM_FETCHES, self._is_ending)
        for tip in self._foreign.expired():
            run_id = tip.claim.id
            if run_id in self._rests.resting() or not self._may_take_over(tip) or not budget.take():
                continue
            try:
                with self._link.lock:
                    view = self._link.bus.read_claim(run_id, tip.oid)
                if view is not None and not view.signature.refused:
                    self._go_on(refs[run_id], view, resume=view.claim.state == "claimed")
            except InfrastructureError as error:
                for_run(self.log, run_id).warning("cannot be looked at: %s", error.message)

    def _may_take_over(self, tip: ClaimTip) -> bool:
        if self.state.journal.of(tip.claim.id) is not None:
            return False  # recovery settles what this runner's journal knows, or leaves it first
        if tip.sealed and not self._link.signs:
            return False  # what a signed claim holds, only a signed one moves on
        if tip.claim.state == "started" and self._foreign.is_spooled(tip):
            return False  # it ran, and its runner says that it still holds the result
        full = (
            self.took_one
            or self._moving() is not None
            or len(self._active) >= self._slots.count
            or self._admission.host_wait() is not None
        )
        return not (tip.claim.state == "claimed" and full)

    def _go_on(self, ref: RequestRef, view: ClaimView, *, resume: bool) -> None:
        """Run what was only claimed, finalise what was started.

        Raises:
            InfrastructureError: the claim could not be taken over.
        """
        link, clock, journal = self._link, self.clock, self.state.journal
        ref = self._as_asked(ref, view.claim.request_oid)
        held = view.held()
        claimed = view.history[0].time
        if not resume:
            vanished = Ending("runner_lost", f"runner {view.claim.runner} vanished while the run was going on")
            self._start(ClaimedRun(ref, held, None, claimed, clock.steady_s(), lost=vanished))
            return
        claim = following(held, clock, runner=self._name, state="claimed", lease_s=link.budget.lease_s())
        journal.append("fetched", ref.id, ref.oid, nonce=claim.nonce)
        asked_s = clock.steady_s()
        with link.lock:
            held = link.bus.take_over(view, claim)
        journal.append("claimed", ref.id, held.oid)
        self._start(ClaimedRun(ref, held, None, claimed, asked_s))

    def _as_asked(self, ref: RequestRef, oid: str) -> RequestRef:
        """Return a run's request at the commit that was claimed; of several branches that lead there the one it names.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        found = [one for one in self._requests if (one.id, one.oid) == (ref.id, oid)]
        if len(found) > 1:
            with self._link.lock, contextlib.suppress(FencedError, RequestRejectedError, ValueError):
                named = Request.parse(self._link.bus.read_request(found[0]).data).ref
                found.sort(key=lambda one: one.ref != named)
        return found[0] if found else RequestRef(ref.id, ref.ref, oid)

    def _start(self, work: ClaimedRun) -> None:
        self._pace.happened()
        with self._lock:  # its end is noted under the same lock, so it cannot come before its beginning
            if work.lost is None and self._left is not None and work.ref.id != self._taken:  # else it goes on with it
                self._left -= 1
                self._taken = work.ref.id
            if work.ref.id == self._taken:
                self._begins_later = False
            begin = partial(self._work, work, self._rules.now)
            self._active[work.ref.id] = self._tasks.start(begin, f"run-{work.ref.id[-8:]}")
        self._cancels.watch()

    def _work(self, work: ClaimedRun, rules: OwnerRules) -> None:
        run_id, log = work.ref.id, for_run(self.log, work.ref.id)
        renewal: ClaimRenewal | None = None
        try:
            link = self._link.beside()
            link.bus.stop_when(self.leaving.is_set)  # one that is to end with the runner is still published
            renewal = ClaimRenewal(
                link, work.held, clock=self.clock, beacon=self._beacons.due, asked_s=work.asked_s, tasks=self._tasks,
            )  # fmt: skip
            session = self._session(work, rules, link, renewal)
            outcome = run_once(session) if work.lost is None else recover_once(session, work.lost)
            with self._lock:
                self._outcomes.append(outcome)
        except FencedError as error:
            log.debug("%s", error.message)
            self._recovery.fenced(run_id)
        except LeftRunningError as error:
            if not self._is_ending():
                self._rests.failed(run_id)
                self._begins_later = run_id == self._taken
            log.debug("%s", error.message)
        except Exception as error:  # nobody is above this thread, and recovery finalises the run
            rest_s = self._rests.failed(run_id)
            known = of_system(error).message if isinstance(error, OSError) else str(error)
            is_known = isinstance(error, KakeyaError | OSError)
            said = known if is_known else f"a bug: {type(error).__name__}: {error}"
            level = logging.WARNING if is_known else logging.ERROR
            log.log(level, "not ended yet, tried again in %.0f s: %s", rest_s, said, exc_info=True)
        finally:
            try:
                if renewal is not None:
                    renewal.stop()
            finally:  # whatever went wrong, the slot is free again
                with self._lock:
                    del self._active[run_id]
                self._slots.release(run_id)
                self._pace.happened()
                self._run_ended.set()

    def _session(self, work: ClaimedRun, rules: OwnerRules, link: BusLink, renewal: ClaimRenewal) -> ClaimedRunSession:
        return ClaimedRunSession(
            rules, self._machine, self.state, link, work=work, renewal=renewal,
            delivery=self._delivery.over(link), clock=self.clock, cancelled=lambda: work.ref.id in self._cancels,
            stopping=self.stopping, leaving=self.leaving, slots=self._slots, log=self.log,
        )  # fmt: skip

    def _refusal(self) -> str | None:
        """Return why nothing is taken because of who this runner is, None where nothing speaks against it."""
        return self._twins.wait or (None if self._keeper is None else self._keeper.ended()) or self._moving()

    def _moving(self) -> str | None:
        place = self._link.moving_to()
        return f"the bus is moving to {place}, and nothing more is begun before it is there" if place else None

    def _not_taking(self) -> str:
        """Return, for requesters, why this runner takes nothing until its owner does something; empty where it does."""
        problem = self._rules.problem
        return (self._clocks.wrong or self._moving() or "") if problem is None else problem.public

    def _note_beacon(self, number: int) -> None:
        self.state.database.note(Fact.BEACON, str(number), durable=False)

    def _running_ids(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._active)

    def _unended_ids(self) -> tuple[str, ...]:
        return tuple(one.id for one in self.state.journal.histories())
