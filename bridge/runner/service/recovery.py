"""After a crash: end or go on with what this runner's own journal and claims say, once and at once.

The rule: a run that was only claimed may run; a run that was started is never run again. While it goes on it is
followed again, what it came to is judged and published, and a run of which nothing is known is finalised as
``runner_lost``; a result that was built is published as is.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from bridge.bus.views import ClaimView, RequestRef
from bridge.errors import BusError, FencedError, InfrastructureError, LeftRunningError, ObjectError
from bridge.executor.interface import Execution, Executor, Hooks, LiveRun
from bridge.executor.removal import remove_tree
from bridge.runner.connection.link import BusLink
from bridge.runner.connection.rests import Rests
from bridge.runner.connection.root_keeper import PAUSE_MAX_S, PAUSE_S
from bridge.runner.run.delivery import ResultDelivery
from bridge.runner.state import prepared
from bridge.runner.state.folder import OpenState
from bridge.runner.state.history import JournalStage, RunHistory
from bridge.runner.state.log import for_run
from bridge.system.clock import Clock


class OnBus(StrEnum):
    """What is on the bus of a run that this runner's journal knows."""

    GONE = "neither a request nor a claim"
    UNCLAIMED = "a request without a claim"
    FOREIGN = "a claim that is not this journal's"
    CLAIMED = "our claim, not started"
    STARTED = "our claim, started"
    TERMINAL = "our claim, ended"


class Action(StrEnum):
    """What becomes of a run after a crash."""

    FORGET = "nothing is left to do"
    LEAVE = "the queue may take it again"
    PUT_BACK = "put our claim back, then as if it had been there"
    YIELD = "another runner has it"
    RUN = "claim it anew and run it"
    FINALISE = "follow it again, publish what it came to, or that it was lost"
    DELIVER = "publish the result that is built"
    COPY = "copy the published result to the request branch"
    NOTIFY = "notify of the copied result"


_A = Action
# In the order of OnBus. The journal is written before what it announces, so it may be one step behind the bus or ahead
# of it, and never two.
_ROWS: Final[Mapping[JournalStage, tuple[Action, ...]]] = {
    JournalStage.QUEUED: (_A.FORGET, _A.LEAVE, _A.YIELD, _A.RUN, _A.FINALISE, _A.FORGET),
    # It was let in under this claim, and is under no other.
    JournalStage.CLAIMED: (_A.FORGET, _A.PUT_BACK, _A.YIELD, _A.RUN, _A.FINALISE, _A.FORGET),
    JournalStage.RUNNING: (_A.PUT_BACK, _A.PUT_BACK, _A.YIELD, _A.FINALISE, _A.FINALISE, _A.FORGET),
    JournalStage.JUDGING: (_A.PUT_BACK, _A.PUT_BACK, _A.YIELD, _A.FINALISE, _A.FINALISE, _A.FORGET),
    JournalStage.BUILT: (_A.PUT_BACK, _A.PUT_BACK, _A.YIELD, _A.DELIVER, _A.DELIVER, _A.COPY),
    JournalStage.PUBLISHED: (_A.PUT_BACK, _A.PUT_BACK, _A.YIELD, _A.DELIVER, _A.DELIVER, _A.COPY),
    # The journal alone decides: the claim of a run that ended long ago may be gone.
    JournalStage.COPIED: (_A.NOTIFY,) * len(OnBus),
}
ACTIONS: Final[Mapping[tuple[JournalStage, OnBus], Action]] = MappingProxyType(
    {(stage, on_bus): action for stage, row in _ROWS.items() for on_bus, action in zip(OnBus, row, strict=True)}
)

_BEHIND: Final = "the claim is in the journal before a run can start"
_STARTED: Final = "the bus acknowledged the start before the journal had it, and a claim never steps back"
_UNBUILT: Final = "a result is in the journal before it ends a run"
# What only a journal or a bus restored from an old copy can show; the action is the one that runs nothing twice.
UNREACHABLE: Final[Mapping[tuple[JournalStage, OnBus], str]] = MappingProxyType(
    {
        (JournalStage.QUEUED, OnBus.STARTED): _BEHIND,
        (JournalStage.RUNNING, OnBus.CLAIMED): _STARTED,
        (JournalStage.JUDGING, OnBus.CLAIMED): _STARTED,
        **{(stage, OnBus.TERMINAL): _UNBUILT for stage in JournalStage if stage < JournalStage.BUILT},
    }
)


@dataclass(frozen=True)
class Unfinished:
    """A run of ours that still has to go somewhere.

    Attributes:
        resume: whether it may run: it was claimed and certainly never started.
    """

    ref: RequestRef
    view: ClaimView
    resume: bool


class Recovery:
    """Recovers the runs of one runner.

    Args:
        name: the runner's name.
        delivery: delivers what was built, and notifies of it.
        executor: knows what became of a run from its folder.
        clock: paces how often a deleted claim is put back.
    """

    def __init__(
        self,
        name: str,
        state: OpenState,
        link: BusLink,
        *,
        delivery: ResultDelivery,
        executor: Executor,
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._name, self._state, self._link = name, state, link
        self._delivery, self._executor, self._clock, self._log = delivery, executor, clock, log
        self._rests = Rests(clock, PAUSE_S, PAUSE_MAX_S)

    def sweep(self) -> None:
        """Look after the folders of runs that the journal is through with; nobody else looks at them any more."""
        known = {history.id: history for history in self._state.journal.histories()}
        for folder in self._state.folder.runs.iterdir():
            if folder.name not in known:
                self.give_up(folder.name)
            elif known[folder.name].stage >= JournalStage.BUILT:
                remove_tree(folder)

    def leave(self, run_id: str, tip: str | None = None) -> None:
        """Leave a run to its new owner, whose claim is at this tip, and keep nothing of it that is for the bus."""
        self._state.journal.append("fenced", run_id, tip)
        self.give_up(run_id)  # first: it takes the machine from its new owner, and the bus may hang
        try:
            with self._link.lock:
                self._link.bus.forget(run_id)
        except (InfrastructureError, OSError) as error:
            for_run(self._log, run_id).warning("what was kept for the bus stays: %s", error)

    def fenced(self, run_id: str) -> None:
        """Leave a run whose claim somebody moved, unless that was we: by a push whose answer was lost.

        What was pushed so is followed from the next listing on; so is what cannot be told now.
        """
        history, log = self._state.journal.of(run_id) or RunHistory(run_id), for_run(self._log, run_id)
        try:
            with self._link.lock:
                view = self._link.bus.read_claim(run_id)
            tip = None if view is None else view.oid
            action = ACTIONS[history.stage, self._on_bus(history, {}, tip)[0]]
            if action is Action.PUT_BACK and not self._is_archived(run_id):
                log.info("its claim was deleted on the bus: it is put back")
            elif action in {Action.FORGET, Action.YIELD, Action.PUT_BACK}:
                log.warning("left to its new owner")
                self.leave(run_id, tip)
            else:
                log.info("its claim was moved by a push of ours that was not answered: going on from there")
        except InfrastructureError as error:
            log.debug("not left yet: %s", error.message)

    def give_up(self, run_id: str) -> None:
        """End what still goes on of a run that is not ours any more; keep what it came to, readable on this host."""
        handle, log = self._state.folder.runs / run_id, for_run(self._log, run_id)
        if not handle.is_dir():
            return
        try:
            came_to = self._executor.recover(handle, Hooks(on_log=lambda _: None, should_stop=lambda: None))
        except LeftRunningError as error:
            log.warning("still begins here, and is not this runner's any more: %s", error.message)
            return  # the next start looks again
        except InfrastructureError as error:
            log.debug("given up: %s", error.message)
            came_to = None
        if came_to is None:
            remove_tree(handle)
        elif isinstance(came_to, Execution):
            self._keep_late(run_id)
        else:
            log.warning("still goes on here, and is not this runner's any more: it is being stopped")
            came_to.stop()
            threading.Thread(target=self._wait_and_keep, args=(run_id, came_to), daemon=True).start()

    def _wait_and_keep(self, run_id: str, running: LiveRun) -> None:
        with contextlib.suppress(InfrastructureError, OSError):
            running.wait()
            self._keep_late(run_id)

    def _keep_late(self, run_id: str) -> None:
        """Keep what a run came to, but for what may hold secrets."""
        handle, late = self._state.folder.runs / run_id, self._state.folder.late / run_id
        for name in ("files", "job.json", prepared.FILE):
            remove_tree(handle / name)
            with contextlib.suppress(OSError):
                (handle / name).unlink()
        remove_tree(late)
        handle.rename(late)
        for_run(self._log, run_id).warning("what it came to is not its result any more, and stays in %s", late)

    def recover(
        self, refs: Mapping[str, RequestRef], claims: Mapping[str, str], active: Container[str] = ()
    ) -> list[Unfinished]:
        """Settle what the journal can settle, and return what still needs a session.

        Args:
            refs: request branches by run id, as listed.
            claims: claim tips by run id, as listed.
            active: runs that are going on right now.
        """
        unfinished: list[Unfinished] = []
        histories = self._state.journal.histories()
        self._rests.forget_but([history.id for history in histories])
        for history in histories:
            if history.id in active:
                continue
            try:
                tip = claims.get(history.id)
                on_bus, view = self._on_bus(history, refs, tip)
                unfinished += self._act(ACTIONS[history.stage, on_bus], history, refs.get(history.id), tip, view)
            except FencedError:
                self.fenced(history.id)
            except InfrastructureError as error:
                for_run(self._log, history.id).warning("cannot be recovered yet: %s", error.message)
        return unfinished

    def _on_bus(
        self, history: RunHistory, refs: Mapping[str, RequestRef], tip: str | None
    ) -> tuple[OnBus, ClaimView | None]:
        """Return what is on the bus of a run, with its claim where that is this journal's.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        if tip is None or history.stage == JournalStage.COPIED:
            return OnBus.UNCLAIMED if history.id in refs else OnBus.GONE, None
        with self._link.lock:
            try:
                view = self._link.bus.read_claim(history.id, tip)
            except ObjectError:
                view = None  # no claim at all
            if view is None or view.signature.refused:
                view = self._last_own(history) or view  # displaced while this runner was down
        if view is None or not self._is_ours(history, view):
            return OnBus.FOREIGN, None
        return OnBus[view.claim.state.upper()], view

    def _is_ours(self, history: RunHistory, view: ClaimView) -> bool:
        """Return whether a claim is this journal's: another host may use the same name, never the same nonce."""
        return view.claim.runner == self._name and any(claim.nonce in history.nonces for claim in view.history)

    def _last_own(self, history: RunHistory, *, end: bool = False) -> ClaimView | None:
        """Return the claim of ours that the journal saw last, None when nothing here holds it any more.

        Args:
            history: what the journal says of the run.
            end: whether the claim that ended the run is meant where there is one.
        """
        oid = (history.end_oid if end else None) or history.claim_oid
        try:
            return None if oid is None else self._link.bus.read_claim(history.id, oid)
        except BusError:
            return None

    def _is_archived(self, run_id: str) -> bool:
        with self._link.lock:
            return self._link.bus.is_archived(run_id)

    def _put_back(self, history: RunHistory, listed: RequestRef | None) -> list[Unfinished]:
        """Put our claim back where it was deleted and go on as if it had been there; later where that was just done.

        Raises:
            FencedError: another claim is there by now, or the run was archived.
            InfrastructureError: the bus did not answer.
        """
        run_id, log = history.id, for_run(self._log, history.id)
        if run_id in self._rests.resting():
            return []
        with self._link.lock:
            view = self._last_own(history, end=True)
            if view is not None and view.claim.state == "claimed":  # its start may be ours, and not in the journal yet
                view = self._link.bus.begun_by(run_id) or view
            if view is None:
                log.warning("its claim was deleted on the bus, and nothing here holds it any more")
                self.leave(run_id)
                return []
            self._link.bus.put_back(view.held())
        if not self._is_ours(history, view):
            log.warning("its claim was deleted on the bus, and runner %s began it", view.claim.runner)
            self.leave(run_id)
            return []
        self._rests.failed(run_id)
        log.warning("its claim was deleted on the bus: put back")
        return self._act(ACTIONS[history.stage, OnBus[view.claim.state.upper()]], history, listed, view.oid, view)

    def _act(
        self, action: Action, history: RunHistory, listed: RequestRef | None, tip: str | None, view: ClaimView | None
    ) -> list[Unfinished]:
        """Take one action of the table; return the run if it needs a session.

        Raises:
            FencedError: another runner has it by now.
            InfrastructureError: the bus did not answer.
        """
        journal, run_id = self._state.journal, history.id
        if action in {Action.FORGET, Action.YIELD}:
            if action is Action.YIELD and history.ran:
                why = "came to its end here, but too late: another runner has ended it meanwhile"
                for_run(self._log, run_id).warning(why)
            self.leave(run_id, tip)
        elif action is Action.NOTIFY:
            self._notify(history)
        elif action is Action.PUT_BACK:
            return self._put_back(history, listed)
        elif view is not None:
            ref = _as_claimed(history, listed, view)
            if action in {Action.RUN, Action.FINALISE}:
                return [Unfinished(ref, view, resume=action is Action.RUN)]
            if action is Action.COPY and history.stage < JournalStage.PUBLISHED:
                journal.append("terminal", run_id, view.oid)
            if action is Action.COPY:
                self._delivery.copy(ref, view.claim.result_oid, tries=1)
            elif history.built is not None and history.built.oid is not None:
                self._delivery.deliver(ref, view.held(), history.built.ending, history.built.oid, tries=1)
            copied = journal.of(run_id)
            if copied is not None and copied.stage == JournalStage.COPIED:
                self._notify(copied)
        return []

    def _notify(self, history: RunHistory) -> None:
        if history.delivered is None or history.delivered_oid is None or history.built is None:
            return
        self._delivery.notify_after_crash(history.delivered, history.built.ending, history.delivered_oid)


def _as_claimed(history: RunHistory, listed: RequestRef | None, view: ClaimView) -> RequestRef:
    """Return the request as it was claimed: a branch that moved since, or has the same run id, is another request."""
    branch = "" if history.built is None else history.built.branch
    return RequestRef(history.id, branch or ("" if listed is None else listed.ref), view.claim.request_oid)
