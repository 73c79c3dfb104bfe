"""`status`, `logs`, `ls`, `fetch`, `open`, `runners`: looking changes nothing on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.listing import Repainter, run_lines
from bridge.cli.screen.run_view import print_status
from bridge.cli.signals import DetachedError
from bridge.client.connection.liveness import SeenRunner, doubts, look
from bridge.client.connection.session import BusSession
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import PREFIX, clean_line, fenced, new_fence
from bridge.client.run.follow import poll_bounds
from bridge.client.run.listing import Row, rows
from bridge.client.run.present import document
from bridge.client.run.run import Run
from bridge.durations import age_text, duration_text
from bridge.errors import UsageError
from bridge.ids import short
from bridge.presets import registry

WATCH_S: Final = 2.0


def status(call: Invocation) -> int:
    """Say where a run is and how it ended; answering is success, whatever the answer."""
    run = call.find_run(call.args.id)
    found = run.with_actions(run.status())
    print_status(call.output, run, found, call.directory)
    if not found.terminal and run.elapsed_s is not None:
        call.output.row("asked", f"{duration_text(run.elapsed_s)} ago")
        if found.state == "queued":
            why, ignored = run.why_queued()
            call.output.row("waiting", why)
            for line in ignored:
                call.output.row("ignored", line)
    call.output.document(document(run, found, "status", exit_code=0))
    return 0


def logs(call: Invocation) -> int:
    """Print a run's log between fences."""
    run = call.find_run(call.args.id)
    if call.args.follow and not call.output.json and run.session is not None:
        return _follow(call, run)
    lines = run.logs()
    last = lines[-call.args.lines :] if call.args.lines else lines
    fence = new_fence()
    for line in fenced(last, "log", fence):
        call.output.data(line)
    shown = {"untrusted": True, "fence": fence, "earlier_lines": len(lines) - len(last), "lines": last}
    call.output.document({**document(run, run.status(), "logs", exit_code=0), "log_tail": shown})
    return 0


def _follow(call: Invocation, run: Run) -> int:
    """Print log lines as they come, fenced, until the run ends."""
    fence = new_fence()
    call.output.data(f"--- untrusted log {fence} ---")
    for progress in run.follow(log="lines"):
        if progress.kind == "trouble":
            call.output.note(progress.lines[0])
        # The stored log is whole; the live one may have ended a chunk earlier.
        lines = run.logs(after=progress.log_bytes) if progress.kind == "end" else progress.lines
        if progress.kind in {"log", "end"}:
            for line in lines:
                call.output.data(f"{PREFIX}{line}")
    call.output.data(f"--- end of untrusted log {fence} ---")
    end = run.status()
    if end.message or not end.terminal:
        call.output.say("end", f"  {end.reason}" + (f": {clean_line(end.message)}" if end.message else ""))
    return 0


def ls(call: Invocation) -> int:
    """List runs, newest first; with --watch again and again until a signal."""
    if call.args.watch:
        return _watch_runs(call)
    session = call.connect(quiet=True)
    found = _rows(call, session)
    lines = [row.id for row in found] if call.args.ids else run_lines(found, call.output.columns)
    for line in lines:
        call.output.data(line)
    if not found:
        call.output.say("note", _NOTHING[bool(call.args.state or call.args.preset)])
    call.output.document(of_data("ls", [row.data() for row in found], bus=session.bus_part()))
    return 0


_NOTHING: Final = ("no runs yet", "no such runs")


def _rows(call: Invocation, session: BusSession) -> list[Row]:
    args = call.args
    return rows(session, state=args.state, preset=args.preset, limit=args.limit, archived=args.all)


def _watch_runs(call: Invocation) -> int:
    """Show the listing in place, or anew each time it changed where nothing can be shown in place.

    Raises:
        UsageError: a program asks.
    """
    if call.output.json or call.args.ids:
        raise UsageError("--watch is for people", remedy="kakeya-mac ls --json, as often as it is needed")
    session = call.connect(quiet=True)
    pause_s = max(WATCH_S, poll_bounds(session)[1])
    with Repainter(call.output) as painter:
        try:
            while True:
                found = _rows(call, session)
                painter.show(run_lines(found, call.output.columns) if found else [_NOTHING[0]])
                session.clock.sleep(pause_s)
        except DetachedError as asked:
            return asked.exit_code


def fetch(call: Invocation) -> int:
    """Write a run's verified result to disk."""
    run = call.find_run(call.args.id)
    run.result()
    print_status(call.output, run, run.status(), call.directory)
    call.output.document(document(run, run.status(), "fetch", exit_code=0))
    return 0


def open_result(call: Invocation) -> int:
    """Print the folder of a run's result, or the page that shows it."""
    if call.args.html:
        return _open_page(call)
    run = call.find_run(call.args.id)
    run.result()
    call.output.data(str(run.status().folder))
    call.output.document(document(run, run.status(), "open", exit_code=0))
    return 0


def _open_page(call: Invocation) -> int:
    from bridge.client.page.writing import write_folder_page, write_page

    folder = Path(call.directory, call.args.id)
    if folder.is_dir():
        path = write_folder_page(call.settings(), folder)
    else:
        run = call.find_run(call.args.id)
        path = write_page(run.settings, run)
    call.output.data(str(path))
    call.output.document(of_data("open", {"page": str(path)}))
    return 0


def runners(call: Invocation) -> int:
    """List the runners of the bus."""
    session = call.connect()
    seen = look(session.bus, session.record, session.clock.now())
    for one in seen:
        beacon = one.beacon
        alive = beacon.state if one.live or beacon.state == "stopped" else "gone"
        call.output.data(
            f"{beacon.runner:<18} {alive:<9} seen {age_text(one.age_s):>8} ago  queue {beacon.queue}  "
            f"{clean_line(', '.join(beacon.capabilities)) or '-'}"
        )
        for label, words in _offers(one):
            call.output.data(f"{'':<18} {label:<9} {clean_line(', '.join(words))}")
    for line in doubts(session.bus):
        call.output.say("warning", clean_line(line))
    if not seen:
        awake = "it starts with the first request" if session.embedded else "no beacon on this bus"
        call.output.say("note", f"no runner is awake: {awake}")
    data = [{**one.beacon.model_dump(mode="json"), "age_s": round(one.age_s, 3), "live": one.live} for one in seen]
    call.output.document(of_data("runners", data, bus=session.bus_part()))
    return 0


def _offers(seen: SeenRunner) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield label and words of each further line about a runner."""
    beacon = seen.beacon
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
