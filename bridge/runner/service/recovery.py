"""After a crash: end or go on with what this runner's own journal and claims say, once and at once.

The rule: a run that was only claimed may run; a run that was started is never run again. What it came to is judged and
published if it was kept, otherwise the run is finalised as ``runner_lost``; a result that was built is published as is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import get_args

from bridge.bus.views import ClaimView, HeldClaim, RequestRef
from bridge.errors import BusError, FencedError, InfrastructureError
from bridge.executor.interface import Executor
from bridge.records import Reason
from bridge.run.outcomes import Ending
from bridge.runner.connection.link import BusLink
from bridge.runner.run.delivery import ResultDelivery, debtor
from bridge.runner.state import kept
from bridge.runner.state.folder import OpenState
from bridge.runner.state.journal import JournalLine


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
        state: the runner's state.
        link: the bus.
        delivery: delivers and tells of what was built.
        executor: kills what an earlier process left running.
        say: takes one line for people.
    """

    def __init__(
        self,
        name: str,
        state: OpenState,
        link: BusLink,
        *,
        delivery: ResultDelivery,
        executor: Executor,
        say: Callable[[str], None],
    ) -> None:
        self._name, self._state, self._link = name, state, link
        self._delivery, self._executor, self._say = delivery, executor, say

    def kill_leftovers(self) -> None:
        """Kill whatever an earlier runner of this name left running, then remove the directories it left."""
        for run_id in self._state.journal.open_runs():
            for line in self._state.journal.of(run_id):
                if line.event == "process":
                    pid, started, marker = (line.detail.get(name) for name in ("pid", "started", "marker"))
                    killed = self._executor.kill_leftovers(int(pid or 0), float(started or 0.0), str(marker))
                    if killed:
                        self._say(f"{run_id[-8:]} killed {killed} processes that an earlier runner left behind")
        for left in self._state.folder.runs.iterdir():  # the lock is ours: nothing runs in them
            shutil.rmtree(left, ignore_errors=True)

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
        for run_id in self._state.journal.open_runs():
            if run_id in active or self._tell_of_delivered(run_id):
                continue
            if run_id not in claims:
                if run_id not in refs:
                    self._state.journal.append("fenced", run_id)  # neither asked for nor claimed any more
                continue
            try:
                with self._link.lock:
                    view = self._link.bus.read_claim(run_id, claims[run_id])
                    if view is not None and view.standing.refused:
                        view = self._last_own(run_id) or view  # displaced while this runner was down
                if view is None or not self._ours(run_id, view):
                    if any(line.event == "exited" for line in self._state.journal.of(run_id)):
                        self._say(
                            f"{run_id[-8:]} came to its end here, but too late: another runner has ended it meanwhile"
                        )
                    self._state.journal.append("fenced", run_id, claims[run_id])
                else:
                    unfinished += self._settle(run_id, refs.get(run_id), view)
            except FencedError:
                self._state.journal.append("fenced", run_id)
            except InfrastructureError as error:
                self._say(f"{run_id[-8:]} cannot be recovered yet: {error.message}")
        return unfinished

    def saved(self, run_id: str, oid: str) -> kept.KeptRun | None:
        """Return what a run came to before its runner died, or None when it is not known.

        Args:
            run_id: the run.
            oid: the request commit as it was claimed.
        """
        exits = [line.detail.get("kept_sha256") for line in self._state.journal.of(run_id) if line.event == "exited"]
        found = kept.load(self._state.folder.kept, run_id, str(exits[-1]) if exits and exits[-1] is not None else None)
        return found if found is not None and found.request_oid == oid else None

    def _ours(self, run_id: str, view: ClaimView) -> bool:
        """Return whether a claim is this journal's: another host may use the same name, never the same nonce."""
        nonces = {line.detail.get("nonce") for line in self._state.journal.of(run_id) if line.event == "fetched"}
        return view.claim.runner == self._name and any(claim.nonce in nonces for claim in view.history)

    def _last_own(self, run_id: str) -> ClaimView | None:
        """Return the claim of ours that the journal saw last, None when nothing here holds it any more."""
        oids = [
            line.oid for line in self._state.journal.of(run_id) if line.event in {"claimed", "started"} and line.oid
        ]
        try:
            return self._link.bus.read_claim(run_id, oids[-1]) if oids else None
        except BusError:
            return None

    def _settle(self, run_id: str, listed: RequestRef | None, view: ClaimView) -> list[Unfinished]:
        lines = self._state.journal.of(run_id)
        built = next((line for line in reversed(lines) if line.event == "result_built"), None)
        ref = _reference(run_id, listed, view, built)
        events = {line.event for line in lines}
        if view.claim.state == "terminal":
            if "terminal" not in events:
                self._state.journal.append("terminal", run_id, view.oid)
            if "copied" not in events and built is not None:
                self._delivery.copy(ref, view.claim.result_oid, tries=1)
                self._tell_of_delivered(run_id)
            return []
        if built is not None and built.oid is not None:
            held = HeldClaim(view.oid, view.claim, view.chain)
            self._delivery.deliver(ref, held, _ending(built), built.oid, tries=1)
            self._tell_of_delivered(run_id)
            return []
        return [Unfinished(ref, view, resume=view.claim.state == "claimed" and "started" not in events)]

    def _tell_of_delivered(self, run_id: str) -> bool:
        """Tell of a run whose result is delivered and not told of; return whether it is such a run.

        The journal alone decides: the claim of a run that ended long ago may be gone.
        """
        lines = {line.event: line for line in self._state.journal.of(run_id)}
        copied, built = lines.get("copied"), lines.get("result_built")
        if copied is None or copied.oid is None or built is None:
            return False
        self._delivery.tell_late(debtor(copied), _ending(built), copied.oid)
        return True


def _reference(run_id: str, listed: RequestRef | None, view: ClaimView, built: JournalLine | None) -> RequestRef:
    """Return the request as it was claimed: a branch that moved since is another request."""
    name = listed.ref if listed is not None else str(built.detail.get("ref", "")) if built is not None else ""
    return RequestRef(id=run_id, ref=name, oid=view.claim.request_oid)


def _ending(built: JournalLine) -> Ending:
    message = built.detail.get("message")
    said = None if message is None else str(message)
    known: Reason
    for known in get_args(Reason):
        if known == built.detail.get("reason"):
            return Ending(known, said)
    return Ending("infrastructure", said)
