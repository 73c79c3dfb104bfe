"""`run`, `attach`, `wait`, `cancel`, `retry`: everything that sends or waits."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from bridge.cli.mac.actions import actions_for, cancel_actions, with_actions
from bridge.cli.mac.context import Invocation, connect, connect_for, find_on
from bridge.cli.mac.drafts import wish_of
from bridge.cli.screen.run_view import print_standing
from bridge.cli.screen.timeline import make_timeline, show_all
from bridge.cli.signals import DetachedError
from bridge.client.connection.liveness import ignored_claims, require_runner, waiting_because
from bridge.client.connection.session import BusSession
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.run.actions import Actions
from bridge.client.run.follow import Follower, Progress
from bridge.client.run.present import document
from bridge.client.run.status import RunStatus, run_status
from bridge.client.connection.signing import identity_of
from bridge.client.send.submit import RequestDraft, Sending, build, find_live, send
from bridge.client.send.workflows import warnings
from bridge.errors import InfrastructureError, UsageError
from bridge.ids import short
from bridge.presets import registry
from bridge.records import Request
from bridge.run.outcomes import Required, strongest
from bridge.system.clock import parse_rfc3339

POLL_S = 2.0


def run(call: Invocation) -> int:
    """Send a request; with --wait or --follow see it through."""
    args = call.args
    session = connect(call)
    wish = wish_of(call, session)
    if args.dry_run:
        return _dry_run(call, session, wish)
    return _send_and_wait(call, session, wish, new=args.new, queue=args.queue)


def retry(call: Invocation) -> int:
    """Send the same request again under a new id, naming the one it repeats."""
    session, run_id = connect_for(call, call.args.id)
    standing = run_status(session, run_id, session.bus.view(run_id), fetch=False)
    if standing.request is None:
        raise UsageError(f"the request of {run_id} cannot be read, so it cannot be repeated")
    if not standing.terminal and standing.reason == "pending" and not _is_gone(session, standing):
        raise UsageError(f"{run_id} is still {standing.state.word}", remedy=f"kakeya-mac attach {run_id}")
    old = standing.request
    wish = RequestDraft(old.preset, old.params, old.profile, old.workload, old.runner, old.limits, retry_of=old.id)
    return _send_and_wait(call, session, wish, new=True, queue=call.args.queue)


def attach(call: Invocation) -> int:
    """Wait for a run that was sent earlier."""
    session, run_id = connect_for(call, call.args.id)
    return _see_through(call, session, run_id, _request_of(session, run_id), reattached=True)


def wait(call: Invocation) -> int:
    """Wait silently for runs; end in the strongest of their exit codes."""
    session, first = connect_for(call, call.args.ids[0], quiet=True)
    ids = [first, *(find_on(call, session, text) for text in call.args.ids[1:])]
    standings: list[RunStatus] = []
    deadline_s = None if call.args.wait_timeout is None else session.clock.steady_s() + call.args.wait_timeout
    for run_id in ids:
        left_s = None if deadline_s is None else max(0.0, deadline_s - session.clock.steady_s())
        standings.append(_wait_for(session, run_id, left_s, call))
    for standing in standings:
        call.output.row(standing.reason, f"{standing.id}")
    code = strongest(standing.exit_code for standing in standings)
    if len(standings) == 1:
        standing = with_actions(call, session, standings[0]) if call.output.json else standings[0]
        call.output.document(document(session, standing, "wait", exit_code=code))
    else:
        data = [{"id": one.id, "reason": one.reason, "exit_code": one.exit_code} for one in standings]
        call.output.document(
            of_data("wait", data, exit_code=code, reason=_reason_of(standings, code), bus=session.bus_part())
        )
    return code


def cancel(call: Invocation) -> int:
    """Ask the host to cancel a run."""
    from bridge.client.send.cancel import ask

    session, run_id = connect_for(call, call.args.id)
    standing = ask(session, run_id)
    if standing.terminal:
        call.output.say("run", f"{short(run_id)} has already ended: {standing.reason}")
    else:
        call.output.say("run", f"{short(run_id)} asked to cancel; it was {standing.state.word}")
        standing = cancel_actions(call, session, standing)
    call.output.data(run_id)
    call.output.document(document(session, standing, "cancel", exit_code=0))
    return 0


def _send_and_wait(call: Invocation, session: BusSession, wish: RequestDraft, *, new: bool, queue: bool) -> int:
    live = None if new else find_live(session, wish)
    if not queue and (live is None or not live.reattached):
        require_runner(
            session.bus, session.record, session.clock, preset=wish.preset, selector=wish.runner, poll_s=POLL_S
        )
    if live is None or not live.reattached:
        for line in warnings(session, wish.workload, wish.preset):
            call.output.say("warn", line)
    sending = send(session, wish, live)
    if call.args.wait or call.args.follow or call.args.wait_timeout is not None:
        return _see_through(call, session, sending.sent.id, sending.request, reattached=sending.reattached)
    _say_run(call, session, sending.sent.id, sending.request, reattached=sending.reattached)
    return _sent_only(call, session, sending)


def _sent_only(call: Invocation, session: BusSession, sending: Sending) -> int:
    if session.wake_runner is not None:
        session.wake_runner()
    call.output.data(sending.sent.id)
    actions = actions_for(call, session, sending.sent.ref)
    if actions is not None and not call.output.json and (found := actions.look()) is not None:
        call.output.say("actions", found.text())
    if call.output.json:
        view = session.bus.view(sending.sent.id)
        standing = run_status(
            session, sending.sent.id, view, require=call.args.require if "require" in call.args else None,
            reattached=sending.reattached, fetch=False,
        )  # fmt: skip
        standing = with_actions(call, session, standing, actions)
        call.output.document(document(session, standing, call.command.name, exit_code=0))
    return 0


def _see_through(
    call: Invocation, session: BusSession, run_id: str, request: Request | None, *, reattached: bool
) -> int:
    try:
        _say_run(call, session, run_id, request, reattached=reattached and call.command.name != "attach")
        follower = _follower(session, run_id, request, call.args.wait_timeout, want_log=call.args.follow)
        actions = actions_for(call, session, request.ref if request is not None else None)
        why = _why_waiting(session, request, actions)
        timeline = make_timeline(call.output, _limit_s(request), why, session.clock.steady_s)
        last = show_all(timeline, follower.events())
        standing = _standing(session, run_id, last, call.args.require, reattached=reattached)
        standing = with_actions(call, session, standing, actions)
    except DetachedError as detached:
        return _detached(call, session, run_id, request, detached, reattached=reattached)
    print_standing(call.output, session, standing, call.directory)
    call.output.document(document(session, standing, call.command.name))
    return standing.exit_code


def _detached(
    call: Invocation, session: BusSession, run_id: str, request: Request | None, detached: DetachedError, *,
    reattached: bool,
) -> int:  # fmt: skip
    call.output.say("detach", f" the run goes on; resume: {_resume(session, run_id)}")
    if call.output.json:
        from bridge.client.run.present import detached_document

        call.output.document(
            detached_document(session, run_id, request, call.command.name, detached.exit_code, reattached=reattached)
        )
    return detached.exit_code


def _follower(
    session: BusSession, run_id: str, request: Request | None, timeout_s: float | None, *, want_log: bool
) -> Follower:
    since = parse_rfc3339(request.created) if request is not None else session.clock.now()
    expires = parse_rfc3339(request.expires) if request is not None else None
    return Follower(session, run_id, since, expires=expires, timeout_s=timeout_s, want_log=want_log)


def _standing(
    session: BusSession, run_id: str, last: Progress, require: Required | None, *, reattached: bool
) -> RunStatus:
    view = last.view if last.view is not None else session.bus.view(run_id)
    return run_status(session, run_id, view, end=last.end, require=require, reattached=reattached)


def _wait_for(session: BusSession, run_id: str, timeout_s: float | None, call: Invocation) -> RunStatus:
    request = _request_of(session, run_id)
    last: Progress | None = None
    for last in _follower(session, run_id, request, timeout_s, want_log=False).events():
        if last.kind == "trouble":
            call.output.note(last.lines[0])
    if last is None:
        raise RuntimeError("a wait yields at least its end")
    return _standing(session, run_id, last, call.args.require, reattached=True)


def _request_of(session: BusSession, run_id: str) -> Request | None:
    """Return what was asked: from this clone's memory, else from the bus."""
    sent = session.store.sent(run_id)
    if sent is not None:
        return sent.request()
    return run_status(session, run_id, session.bus.view(run_id), fetch=False).request


def _reason_of(standings: list[RunStatus], code: int) -> str:
    return next(standing.reason for standing in standings if standing.exit_code == code)


def _is_gone(session: BusSession, standing: RunStatus) -> bool:
    """Whether nobody can start a queued request any more."""
    request = standing.request
    queued = standing.state in {"queued", "unknown"}
    return request is not None and queued and parse_rfc3339(request.expires) <= session.clock.now()


def _say_run(
    call: Invocation, session: BusSession, run_id: str, request: Request | None, *, reattached: bool = False
) -> None:
    preset = request.preset if request is not None else ""
    again = "   already live: attached" if reattached else ""
    call.output.say("run", f"{short(run_id)} {preset}   resume: {_resume(session, run_id)}{again}")


def _resume(session: BusSession, run_id: str) -> str:
    return shlex.join(["kakeya-mac", "attach", short(run_id), *session.settings.bus.words])


def _limit_s(request: Request | None) -> float | None:
    """Return the wall limit that the client's own copy of the preset names; the host may have another."""
    preset = registry().get(request.preset) if request is not None else None
    if preset is None or request is None:
        return None
    own = preset.limits.claim.wall_s if request.profile == "claim" else None
    limits = [value for value in (own or preset.limits.wall_s, request.limits.wall_s) if value is not None]
    return min(limits) if limits else None


def _why_waiting(session: BusSession, request: Request | None, actions: Actions | None) -> Callable[[], str]:
    if request is None:
        return lambda: "waiting for a runner"

    def why() -> str:
        if actions is not None and (view := actions.look()) is not None:
            return view.text()
        words = "" if session.runner_words is None else session.runner_words()
        if (said := words.partition(f"{short(request.id)} waits: ")[2]) != "":
            return f"the runner on this machine waits: {clean_line(said)}"
        try:
            said = waiting_because(session.bus, session.record, session.clock, request.preset, request.runner)
            return clean_line("; ".join((said, *ignored_claims(session.bus, request.id)[-1:])))
        except InfrastructureError as error:  # a heartbeat never ends a wait
            return f"the bus does not answer: {error.message}"

    return why


def _dry_run(call: Invocation, session: BusSession, wish: RequestDraft) -> int:
    who = identity_of(session)
    request = build(session, wish, who)
    live = find_live(session, wish)
    call.output.row("request", f"{request.preset} ({request.profile}) to {request.ref}")
    for name, value in sorted(request.params.items()):
        call.output.row("param", f"{name} = {value}")
    if request.workload is not None:
        dirty = ", with uncommitted changes" if request.workload.dirty else ""
        call.output.row("workload", f"commit {request.workload.commit[:12]}, tree {request.workload.tree[:12]}{dirty}")
    call.output.row("signed", "no" if who is None else f"as {who.principal} with {who.fingerprint}")
    call.output.row("valid", f"{request.created} to {request.expires}")
    call.output.row("live", f"{live.sent.id} is the same and live: it would be attached to" if live else "none")
    call.output.row("sent", "nothing (--dry-run)")
    data = {"request": request.model_dump(mode="json"), "live": live.sent.id if live else None}
    call.output.document(of_data("run", data, reason="dry_run", bus=session.bus_part()))
    return 0
