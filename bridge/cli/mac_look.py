"""`status`, `logs`, `ls`, `fetch`, `open`, `runners`: looking changes nothing on the bus."""

from __future__ import annotations

from bridge.cli.context import Invocation
from bridge.cli.mac_run import connect
from bridge.cli.output import Output, clock_face
from bridge.cli.run_view import print_standing
from bridge.client.envelope import of_data
from bridge.client.follow import Follower
from bridge.client.liveness import ago, look
from bridge.client.outcome import Standing, stand
from bridge.client.present import document
from bridge.client.session import Session
from bridge.client.untrusted import PREFIX, LineJoiner, clean_line, fenced, new_fence, tail
from bridge.errors import PendingError
from bridge.ids import short
from bridge.system.clock import parse_rfc3339


def status(call: Invocation) -> int:
    """Say where a run is and how it ended; answering is success, whatever the answer."""
    session = connect(call, quiet=True)
    run_id = session.find(call.args.id)
    standing = stand(session, run_id, session.bus.view(run_id))
    print_standing(call.output, session, standing, call.directory)
    if not standing.terminal and standing.request is not None:
        elapsed_s = (session.clock.now() - parse_rfc3339(standing.request.created)).total_seconds()
        call.output.row("since", clock_face(elapsed_s))
    call.output.document(document(session, standing, "status", exit_code=0))
    return 0


def logs(call: Invocation) -> int:
    """Print a run's log between fences."""
    session = connect(call, quiet=True)
    run_id = session.find(call.args.id)
    view = session.bus.view(run_id)
    if call.output.json:
        standing = stand(session, run_id, view)
        data = _live_tail(session, run_id, call.args.lines) if standing.result is None else None
        value = document(session, standing, "logs", exit_code=0)
        call.output.document({**value, "log_tail": data or _stored_tail(standing, call.args.lines)})
        return 0
    if call.args.follow:
        return _follow(call, session, run_id)
    standing = stand(session, run_id, view)
    if standing.result is not None:
        lines = list(tail(standing.result.log, call.args.lines or 1_000_000_000).lines)
    else:
        lines = _live_lines(session, run_id)
        lines = lines[-call.args.lines :] if call.args.lines else lines
    for line in fenced(lines, "log", new_fence()):
        call.output.data(line)
    return 0


def ls(call: Invocation) -> int:
    """List runs, newest first."""
    from bridge.client.listing import rows

    session = connect(call, quiet=True)
    found = rows(session, state=call.args.state, preset=call.args.preset, limit=call.args.limit)
    for row in found:
        if call.args.ids:
            call.output.data(row.id)
            continue
        ending = " ".join(word for word in (row.reason, row.verdict) if word)
        call.output.data(
            f"{short(row.id)}  {row.state.word:<8} {row.preset or '?':<28} {ago(row.age_s):>8} ago  "
            f"{row.runner or '-':<16} {ending}".rstrip()
        )
    call.output.document(of_data("ls", [row.data() for row in found], bus=session.bus_part()))
    return 0


def fetch(call: Invocation) -> int:
    """Write a run's verified result to disk."""
    session = connect(call, quiet=True)
    standing = _fetched(session, call.args.id)
    print_standing(call.output, session, standing, call.directory)
    call.output.document(document(session, standing, "fetch", exit_code=0))
    return 0


def open_result(call: Invocation) -> int:
    """Print the folder of a run's result."""
    session = connect(call, quiet=True)
    standing = _fetched(session, call.args.id)
    call.output.data(str(standing.folder))
    call.output.document(document(session, standing, "open", exit_code=0))
    return 0


def runners(call: Invocation) -> int:
    """List the runners of the bus."""
    session = connect(call)
    seen = look(session.bus, session.record, session.clock.now())
    for one in seen:
        beacon = one.beacon
        alive = beacon.state if one.live else "gone"
        call.output.data(
            f"{beacon.runner:<18} {alive:<9} seen {ago(one.age_s):>8} ago  queue {beacon.queue}  "
            f"{clean_line(', '.join(beacon.capabilities)) or '-'}"
        )
    if not seen:
        awake = "it starts with the first request" if session.embedded else "no beacon on this bus"
        call.output.say("note", f"no runner is awake: {awake}")
    data = [{**one.beacon.model_dump(mode="json"), "age_s": round(one.age_s, 3), "live": one.live} for one in seen]
    call.output.document(of_data("runners", data, bus=session.bus_part()))
    return 0


def _fetched(session: Session, text: str) -> Standing:
    run_id = session.find(text)
    standing = stand(session, run_id, session.bus.view(run_id))
    if standing.folder is None:
        raise PendingError(
            f"{short(run_id)} has no result yet: {standing.state.text()}", remedy=f"kakeya-mac attach {run_id}"
        )
    return standing


def _follow(call: Invocation, session: Session, run_id: str) -> int:
    """Print log lines as they come, fenced; ends with the run."""
    standing = stand(session, run_id, session.bus.view(run_id), fetch=False)
    since = parse_rfc3339(standing.request.created) if standing.request is not None else session.clock.now()
    fence = new_fence()
    call.output.data(f"--- untrusted log {fence} ---")
    for progress in Follower(session, run_id, since, want_log=True).events():
        if progress.kind == "log":
            for line in progress.lines:
                call.output.data(f"{PREFIX}{line}")
        elif progress.kind == "trouble":
            call.output.note(progress.lines[0])
        elif progress.kind == "end":
            _rest(call.output, session, run_id, shown_bytes=progress.log_bytes)
    call.output.data(f"--- end of untrusted log {fence} ---")
    return 0


def _rest(output: Output, session: Session, run_id: str, *, shown_bytes: int) -> None:
    """Print what the last chunk did not bring: the stored log is whole."""
    standing = stand(session, run_id, session.bus.view(run_id))
    if standing.result is not None and len(standing.result.log) > shown_bytes:
        for line in tail(standing.result.log[shown_bytes:], 1_000_000_000).lines:
            output.data(f"{PREFIX}{line}")


def _live_lines(session: Session, run_id: str) -> list[str]:
    joiner = LineJoiner()
    lines = [line for chunk in session.bus.read_log(run_id) for line in joiner.feed(chunk.data)]
    return [*lines, *joiner.finish()]


def _live_tail(session: Session, run_id: str, count: int | None) -> dict[str, object]:
    lines = _live_lines(session, run_id)
    shown = lines[-count:] if count else lines
    return {"untrusted": True, "fence": new_fence(), "earlier_lines": len(lines) - len(shown), "lines": shown}


def _stored_tail(standing: Standing, count: int | None) -> dict[str, object]:
    last = tail(standing.result.log if standing.result is not None else b"", count or 1_000_000_000)
    return {
        "untrusted": True,
        "fence": new_fence(),
        "earlier_lines": last.earlier_lines,
        "lines": list(last.lines),
    }
