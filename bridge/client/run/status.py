"""The status of one run: claim, verified result, reason and exit code put together.

The claim is the authority over how a run ended, the result tree over what was measured; neither is shown before the
tree has been checked against its manifest and against this run's id.
"""

from __future__ import annotations

import datetime as dt
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bridge.client.connection.pins import Pins, RefusedResultError, answer_about
from bridge.client.run.limit import raise_limit
from bridge.client.run.result import Result, ending, read_result
from bridge.errors import REMEDY_MARK, FencedError, IntegrityError, RequestRejectedError, RunNotFoundError
from bridge.limits import CLOCK_SKEW_MAX_S
from bridge.request import parse
from bridge.run.outcomes import OUTCOMES, exit_code_of
from bridge.run.state import RunState, state_of
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.bus.tree import Tree
    from bridge.bus.views import RunView
    from bridge.client.clone.store import Store
    from bridge.client.connection.session import BusSession
    from bridge.client.document.parts import ActionsView
    from bridge.records.claim import Claim, RunProgress
    from bridge.records.request import Request
    from bridge.records.run import RunRecord
    from bridge.records.verdict import Verdict
    from bridge.run.requirement import Requirement
    from bridge.trust.judgement import TrustAnswer


_SLACK: Final = dt.timedelta(seconds=min(60.0, CLOCK_SKEW_MAX_S))
EndReason = Literal["terminal", "pending", "runner_lost", "expired", "publish_failed"]
"""Why a wait for a run is over."""


@dataclass(frozen=True)
class RunStatus:
    """The status of one run.

    Attributes:
        claim: the newest claim record, None while queued or when only the stored result is known.
        result, folder: the verified result and where it lies, None before there is one.
        reason: ``pending`` while it goes on, else why it ended.
        exit_code: what a waiting command ends in.
        message, remedy: one line each, or None.
        actions: the workflow run as GitHub shows it, where that was asked.
        answer: whether its runner may say what the result says; None before there is a result.
        terminal: whether nothing follows; a lost runner's run is not terminal, a returning runner may still end it.
    """

    id: str
    state: RunState
    terminal: bool
    reason: str
    exit_code: int
    required: Requirement | None
    request: Request | None
    claim: Claim | None = None
    view: RunView | None = None
    result: Result | None = None
    folder: Path | None = None
    message: str | None = None
    remedy: str | None = None
    reattached: bool = False
    actions: ActionsView | None = None
    answer: TrustAnswer | None = None

    @property
    def record(self) -> RunRecord | None:
        """The run record of the result."""
        return None if self.result is None else self.result.record

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the result, by who signed it: see `Result.verdict_for`."""
        return None if self.result is None else self.result.verdict_for(self.answer)

    @property
    def progress(self) -> RunProgress | None:
        """How far a running run is, as far as its runner said."""
        return self.claim.progress if self.claim is not None and self.state is RunState.RUNNING else None

    @property
    def state_text(self) -> str:
        """The state as people read it."""
        is_cancelling = self.view is not None and self.view.cancel_asked and not self.terminal
        return f"{self.state.word} (cancel asked)" if is_cancelling else self.state.word

    @property
    def profile(self) -> str:
        """The profile that was asked for."""
        return self.request.profile if self.request is not None else "smoke"


def state_of_view(view: RunView) -> RunState:
    """Return the state that a view of the bus shows."""
    return state_of(None if view.claim is None else view.claim.claim, requested=view.request is not None)


def run_status(
    session: BusSession,
    run_id: str,
    view: RunView,
    *,
    end: EndReason | None = None,
    require: Requirement | None = None,
    fetch: bool = True,
) -> RunStatus:
    """Return the status of a run, its result fetched, verified and stored when it has ended.

    Args:
        session: the bus and the store.
        run_id: the run.
        view: what the bus was last seen to say.
        end: why a wait for it ended, None without a wait.
        require: what exit 0 takes, None for anything but a rejection.
        fetch: whether an ended run's result is fetched when it is not here yet.

    Raises:
        IntegrityError: the result is not what it claims to be, or nobody who may say it signed it; it is not shown.
        RunNotFoundError: neither the bus nor this clone knows the run.
    """
    request = _request(session, run_id, view)
    state = state_of_view(view)
    claim = view.claim.claim if view.claim is not None else None
    if state is RunState.UNKNOWN and not session.store.has_result(run_id) and session.store.sent(run_id) is None:
        raise RunNotFoundError(f"the bus {session.bus.route} knows no run {run_id}", remedy="kakeya-mac ls")
    base = RunStatus(
        run_id,
        state,
        terminal=False,
        reason="pending",
        exit_code=OUTCOMES["pending"].exit_code,
        required=require,
        request=request,
        claim=claim,
        view=view,
    )
    if state.terminal or (state is RunState.UNKNOWN and session.store.has_result(run_id)):
        result, folder = _result(session, run_id, claim, fetch=fetch)
        return _ended(base, result, folder, None if result is None else _answer(session, result, claim))
    if end is None and nobody_starts(session, state, None if request is None else parse_rfc3339(request.expires)):
        end = "expired"
    reason, message, remedy = _unfinished(run_id, view, end, _spooled(session, run_id, view, state, end))
    if remedy is not None:
        remedy = shlex.join([*shlex.split(remedy), *session.settings.bus.words])
    return replace(base, reason=reason, exit_code=OUTCOMES[reason].exit_code, message=message, remedy=remedy)


def stored_status(store: Store, run_id: str, trusted: Pins) -> RunStatus | None:
    """Return the status of a run whose intact result is stored, None when there is none; asks no bus.

    Args:
        store: of this clone.
        run_id: the run.
        trusted: what this reader goes by; the answer may be one that refuses the result.

    Raises:
        IntegrityError: what is stored is another run's.
    """
    stored = _stored(store, run_id)
    if stored is None:
        return None
    result, folder = stored
    sent = store.sent(run_id)
    request = sent.request() if sent is not None else result.request
    base = RunStatus(
        run_id,
        RunState.DONE,
        terminal=True,
        reason="pending",
        exit_code=OUTCOMES["pending"].exit_code,
        required=None,
        request=request,
    )
    return _ended(base, result, folder, answer_about(result.tree.files, trusted))


def _ended(
    base: RunStatus, result: Result | None, folder: Path | None, answer: TrustAnswer | None
) -> RunStatus:  # fmt: skip
    verdict = None if result is None else result.verdict_for(answer)
    reason = ending(base.claim, result, verdict, base.required)
    message = base.claim.message if base.claim is not None else None
    if message is None and result is not None and result.record is not None:
        message = result.record.message
    text, _, remedy = (message or "").partition(REMEDY_MARK)
    return replace(
        base,
        state=RunState.DONE,
        terminal=True,
        reason=reason,
        exit_code=exit_code_of(reason, verdict, base.required),
        request=base.request if base.request is not None or result is None else result.request,
        result=result,
        folder=folder,
        message=text or None,
        remedy=remedy or _remedy(base.id, reason, base.required, result, verdict),
        answer=answer,
    )


def _result(session: BusSession, run_id: str, claim: Claim | None, *, fetch: bool) -> tuple[Result | None, Path | None]:
    """Return the verified result and its folder; what is stored is checked as strictly as what is fetched.

    One that was changed here since it was stored stays until the bus's original takes its place.

    Raises:
        IntegrityError: it was changed, and the bus has no original.
    """
    if changed := session.store.has_result(run_id):  # what comes later was stored by a command beside this one
        stored = _stored(session.store, run_id)
        if stored is not None:
            return stored
    if claim is None or claim.result_oid is None:
        if changed:
            folder = session.store.folder(run_id)
            raise IntegrityError(
                f"the result of {run_id} was changed in {folder} since it was stored, and the bus has no original",
                remedy=f"kakeya-mac verify {shlex.quote(str(folder))} names what was changed",
            )
        return None, None
    if not fetch:
        return None, None
    tree = session.bus.read_result(claim.result_oid)
    check(tree, run_id)
    _check_asked(session, tree, run_id)
    result = read_result(tree, run_id)
    _answer(session, result, claim)
    return result, session.store.write_result(run_id, tree)


def _answer(session: BusSession, result: Result, claim: Claim | None) -> TrustAnswer:
    """Return whether a runner may say what a result says.

    Raises:
        RefusedResultError: it may not, perhaps since the result was stored.
    """
    answer = session.answer_about(result.id, result.tree.files, runner=None if claim is None else claim.runner)
    if answer.refused:
        raise RefusedResultError(result.id, answer)
    return answer


def _stored(store: Store, run_id: str) -> tuple[Result, Path] | None:
    if not store.has_result(run_id):
        return None
    from bridge.trust.verifier import verify_tree

    try:
        tree = store.read_result(run_id)
    except IntegrityError:  # a link, or too much in it: not as it was written
        return None
    return None if verify_tree(tree.files, run_id=run_id) else (read_result(tree, run_id), store.folder(run_id))


def check(tree: Tree, run_id: str) -> None:
    """Refuse a tree that is not this run's intact result.

    Raises:
        IntegrityError: the message names the first problem.
    """
    from bridge.trust.verifier import verify_tree

    problems = verify_tree(tree.files, run_id=run_id)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise IntegrityError(
            f"the published result of {run_id} does not verify: {problems[0]}{more}",
            remedy=f"kakeya-mac verify {run_id}",
        )


def _check_asked(session: BusSession, tree: Tree, run_id: str) -> None:
    """Refuse the result of a request that somebody else pushed under the id of one that was sent from here.

    Raises:
        IntegrityError: it is another's.
    """
    sent = session.store.sent(run_id)
    if (
        sent is not None
        and sent.bus_id == session.record.bus_id
        and tree.files.get("request.json", sent.data) != sent.data
    ):
        raise IntegrityError(
            f"the result of {run_id} answers another request than the one that this clone sent: somebody else pushed "
            "one with its run id",
            remedy=f"kakeya-mac retry {run_id}",
        )


def _request(session: BusSession, run_id: str, view: RunView) -> Request | None:
    sent = session.store.sent(run_id)
    if sent is not None:
        return sent.request()
    if view.request is None:
        return None
    try:
        received = session.bus.read_request(view.request)
        return parse(received.data, ref=received.ref.ref, bus_id=session.record.bus_id, now=session.clock.now())
    except (RequestRejectedError, FencedError):
        return None  # not a request, which the host says in its result; or done, and the result holds the request


def nobody_starts(session: BusSession, state: RunState, expires: dt.datetime | None) -> bool:
    """Whether a run waits that no runner starts any more, the clocks of two machines being somewhat apart."""
    if state not in {RunState.QUEUED, RunState.UNKNOWN} or expires is None or session.embedded:
        return False
    return session.clock.now() > expires + _SLACK


def may_be_over(view: RunView, state: RunState) -> bool:
    """Whether a run without an end on the bus may be over: judged, or so short that its start was all that was sent."""
    return state is RunState.JUDGING or (
        state is RunState.RUNNING and view.claim is not None and view.claim.claim.beat == 0
    )


def _spooled(session: BusSession, run_id: str, view: RunView, state: RunState, end: EndReason | None) -> str | None:
    """Return the runner that holds this run's result in its spool; asked only where that can be."""
    if end in {"pending", "expired"} or not (state is RunState.CLAIMED or may_be_over(view, state)):
        return None
    from bridge.client.connection.liveness import look, spooled_at

    # A look goes by the listing that opened the bus, what follows a wait by one of its own.
    runners = session.runners() if end is None else look(session.bus, session.record, session.clock.now())
    runner = spooled_at(runners, run_id)
    return None if runner is None else runner.beacon.runner


def _unfinished(
    run_id: str, view: RunView, end: EndReason | None, spooled: str | None
) -> tuple[str, str | None, str | None]:
    attach = f"kakeya-mac attach {run_id}"
    if spooled is not None or end == "publish_failed":
        undelivered = (
            f"the run is over, but {spooled or 'its runner'} could not deliver the result; it keeps it and tries on"
        )
        return "publish_failed", undelivered, attach
    if end == "runner_lost":
        claim = view.claim.claim if view.claim is not None else None
        runner = claim.runner if claim is not None else "its runner"
        return "runner_lost", f"{runner} has been silent for longer than its lease and no other runner is left", attach
    if end == "expired":
        return "expired", "nobody started it before it expired", f"kakeya-mac retry {run_id}"
    if end == "pending":
        return "pending", "still pending when the wait ended; nothing is lost", attach
    return "pending", None, attach


def _remedy(
    run_id: str, reason: str, required: Requirement | None, result: Result | None, verdict: Verdict | None
) -> str | None:  # fmt: skip
    row = OUTCOMES.get(reason)
    if reason in {"program_failed", "timed_out"} and (advice := raise_limit(result)) is not None:
        return advice
    if row is not None and row.remedy is not None:
        return row.remedy.replace("ID", run_id)
    if reason != "below_required" or required is None or verdict is None:
        return None
    claim_id = required.claim or next((claim.id for claim in verdict.claims if claim.role == "primary"), None)
    if claim_id is None:
        return f"it claims nothing: kakeya-mac report {run_id}"
    return f"kakeya-mac gate explain {claim_id} {run_id} says what it rests on, and what is missing"
