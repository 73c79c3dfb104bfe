"""`status`, `logs`, `ls`, `fetch`, `open`, `runners`: looking changes nothing on the bus."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.mac.actions import with_actions
from bridge.cli.mac.context import Invocation, connect, connect_for
from bridge.cli.screen.output import Output, clock_face
from bridge.cli.screen.run_view import print_standing
from bridge.client.connection.liveness import ago, doubts, ignored_claims, look, waiting_because
from bridge.client.connection.session import BusSession
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import PREFIX, LineJoiner, Tail, clean_line, fenced, new_fence, tail
from bridge.client.run.follow import Follower, unproven_log
from bridge.client.run.present import document
from bridge.client.run.status import RunStatus, run_status
from bridge.client.run.stored import Origin, find_stored
from bridge.errors import PendingError, UntrustedLogError
from bridge.ids import short
from bridge.presets import registry
from bridge.records import Beacon
from bridge.system.clock import parse_rfc3339

ALL_LINES = 1_000_000_000


def status(call: Invocation) -> int:
    """Say where a run is and how it ended; answering is success, whatever the answer."""
    origin, standing = known(call, call.args.id)
    standing = with_actions(call, origin, standing)
    print_standing(call.output, origin, standing, call.directory)
    if not standing.terminal and standing.request is not None:
        elapsed_s = (call.clock.now() - parse_rfc3339(standing.request.created)).total_seconds()
        call.output.row("since", clock_face(elapsed_s))
        if standing.state == "queued" and isinstance(origin, BusSession):
            asked = standing.request
            why = waiting_because(origin.bus, origin.record, origin.clock, asked.preset, asked.runner)
            call.output.row("waiting", clean_line(why))
            for line in ignored_claims(origin.bus, standing.id):
                call.output.row("ignored", clean_line(line))
    call.output.document(document(origin, standing, "status", exit_code=0))
    return 0


def logs(call: Invocation) -> int:
    """Print a run's log between fences."""
    origin, standing = known(call, call.args.id)
    if call.args.follow and not call.output.json and isinstance(origin, BusSession):
        return _follow(call, origin, standing.id)
    count = call.args.lines or ALL_LINES
    if standing.result is not None:
        last = tail(standing.result.log, count)
    else:
        lines = _live_lines(call.output, origin, standing.id) if isinstance(origin, BusSession) else []
        last = Tail(tuple(lines[-count:]), max(0, len(lines) - count))
    fence = new_fence()
    for line in fenced(last.lines, "log", fence):
        call.output.data(line)
    shown = {"untrusted": True, "fence": fence, "earlier_lines": last.earlier_lines, "lines": list(last.lines)}
    call.output.document({**document(origin, standing, "logs", exit_code=0), "log_tail": shown})
    return 0


def ls(call: Invocation) -> int:
    """List runs, newest first."""
    from bridge.client.run.listing import rows

    session = connect(call, quiet=True)
    found = rows(session, state=call.args.state, preset=call.args.preset, limit=call.args.limit)
    width = max((len(row.state.word) for row in found), default=0)
    for row in found:
        if call.args.ids:
            call.output.data(row.id)
            continue
        ending = " ".join(word for word in (row.reason, row.verdict) if word)
        call.output.data(
            f"{short(row.id)}  {row.state.word:<{width}}  {row.preset or '?':<28} {ago(row.age_s):>8} ago  "
            f"{row.runner or '-':<16} {ending}".rstrip()
        )
    if not found:
        call.output.say("note", "no such runs" if call.args.state or call.args.preset else "no runs yet")
    call.output.document(of_data("ls", [row.data() for row in found], bus=session.bus_part()))
    return 0


def fetch(call: Invocation) -> int:
    """Write a run's verified result to disk."""
    origin, standing = finished(call, call.args.id)
    print_standing(call.output, origin, standing, call.directory)
    call.output.document(document(origin, standing, "fetch", exit_code=0))
    return 0


def open_result(call: Invocation) -> int:
    """Print the folder of a run's result."""
    origin, standing = finished(call, call.args.id)
    call.output.data(str(standing.folder))
    call.output.document(document(origin, standing, "open", exit_code=0))
    return 0


def runners(call: Invocation) -> int:
    """List the runners of the bus."""
    session = connect(call)
    seen = look(session.bus, session.record, session.clock.now())
    for one in seen:
        beacon = one.beacon
        alive = beacon.state if one.live or beacon.state == "stopped" else "gone"
        call.output.data(
            f"{beacon.runner:<18} {alive:<9} seen {ago(one.age_s):>8} ago  queue {beacon.queue}  "
            f"{clean_line(', '.join(beacon.capabilities)) or '-'}"
        )
        for label, words in _offers(beacon):
            call.output.data(f"{'':<18} {label:<9} {clean_line(', '.join(words))}")
    for line in doubts(session.bus):
        call.output.say("warning", clean_line(line))
    if not seen:
        awake = "it starts with the first request" if session.embedded else "no beacon on this bus"
        call.output.say("note", f"no runner is awake: {awake}")
    data = [{**one.beacon.model_dump(mode="json"), "age_s": round(one.age_s, 3), "live": one.live} for one in seen]
    call.output.document(of_data("runners", data, bus=session.bus_part()))
    return 0


def _offers(beacon: Beacon) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what of a beacon is worth a line of its own."""
    installed = registry()
    if beacon.labels:
        yield "labels", beacon.labels
    here = tuple(name for name in beacon.presets if name in installed)
    ready = sum(preset.status == "ready" for preset in installed.values())
    yield "presets", (f"{len(here)} of the {ready} that can be asked for here",)
    if only := tuple(name for name in beacon.presets if name not in installed):
        yield "also", only
    if beacon.spooled:
        yield "late", tuple(short(run_id) for run_id in beacon.spooled)


def known(call: Invocation, text: str) -> tuple[Origin, RunStatus]:
    """Return where a run stands: from the store when its result is here, from the bus otherwise."""
    stored = find_stored(call.settings(text), text)
    if stored is not None:
        return stored
    session, run_id = connect_for(call, text, quiet=True)
    return session, run_status(session, run_id, session.bus.view(run_id))


def finished(call: Invocation, text: str) -> tuple[Origin, RunStatus]:
    """Return where a run stands whose result is here now.

    Raises:
        PendingError: it has no result yet.
    """
    origin, standing = known(call, text)
    if standing.result is None:
        raise PendingError(
            f"{short(standing.id)} has no result yet: {standing.state_text}",
            remedy=f"kakeya-mac attach {standing.id}",
        )
    return origin, standing


def _follow(call: Invocation, session: BusSession, run_id: str) -> int:
    """Print log lines as they come, fenced; ends with the run."""
    standing = run_status(session, run_id, session.bus.view(run_id), fetch=False)
    request = standing.request
    since = parse_rfc3339(request.created) if request is not None else session.clock.now()
    expires = parse_rfc3339(request.expires) if request is not None else None
    fence = new_fence()
    end: RunStatus | None = None
    call.output.data(f"--- untrusted log {fence} ---")
    for progress in Follower(session, run_id, since, expires=expires, want_log=True).events():
        if progress.kind == "log":
            for line in progress.lines:
                call.output.data(f"{PREFIX}{line}")
        elif progress.kind == "trouble":
            call.output.note(progress.lines[0])
        elif progress.kind == "end":
            _rest(call.output, session, run_id, shown_bytes=progress.log_bytes)
            end = run_status(session, run_id, session.bus.view(run_id), end=progress.end)
    call.output.data(f"--- end of untrusted log {fence} ---")
    if end is not None and (end.message or not end.terminal):
        call.output.say("end", f"  {end.reason}" + (f": {clean_line(end.message)}" if end.message else ""))
    return 0


def _rest(output: Output, session: BusSession, run_id: str, *, shown_bytes: int) -> None:
    """Print what the last chunk did not bring: the stored log is whole."""
    standing = run_status(session, run_id, session.bus.view(run_id))
    if standing.result is not None and len(standing.result.log) > shown_bytes:
        for line in tail(standing.result.log[shown_bytes:], ALL_LINES).lines:
            output.data(f"{PREFIX}{line}")


def _live_lines(output: Output, session: BusSession, run_id: str) -> list[str]:
    joiner = LineJoiner()
    try:
        lines = [line for chunk in session.bus.read_log(run_id) for line in joiner.feed(chunk.data)]
    except UntrustedLogError as error:
        output.note(clean_line(error.message))
        return []
    if (unproven := unproven_log(session, run_id)) is not None:
        output.note(unproven)
    return [*lines, *joiner.finish()]
