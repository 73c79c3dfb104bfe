"""`ls`, `runners`: what is on the bus, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bridge.cli.screen.answer import Answer, Fitted, Line, Talk
from bridge.cli.screen.listing import NO_RUNS, repaint, run_lines
from bridge.client.document.parts import QuotaPart, RunRow
from bridge.client.document.untrusted import clean_line
from bridge.client.run.listing import rows
from bridge.durations import age_text
from bridge.errors import UsageError
from bridge.ids import short

if TYPE_CHECKING:
    from bridge.cli.mac.context import Invocation
    from bridge.cli.table.options import BusOptions, LsOptions
    from bridge.client.connection.liveness import SeenRunner
    from bridge.client.document.parts import QuotaPart

WATCH_S: Final = 2.0
_UNJUDGED: Final = "no key of this bus is known: results and numbers are as written; `kakeya-mac status ID` judges one"
_TEXT_COLUMN: Final = 29  # of `runners`: behind the name and a label


def ls(call: Invocation[LsOptions]) -> Answer:
    """List runs, newest first; with --watch again and again until a signal.

    Raises:
        UsageError: a program asks to watch.
    """
    session, args = call.connect(quiet=True), call.options

    def find() -> list[RunRow]:
        return rows(session, state=args.state, preset=args.preset, limit=args.limit, archived=args.all)

    if args.watch:
        if call.output.json or args.ids:
            raise UsageError("--watch is for people", remedy="kakeya-mac ls --json, as often as it is needed")
        from bridge.client.run.follow import poll_bounds

        pause_s = max(WATCH_S, poll_bounds(session)[1])
        return Answer(exit_code=repaint(call.output, find, lambda: session.clock.sleep(pause_s)))
    listed = find()
    lines: list[Line] = [*([row.id for row in listed] if args.ids else run_lines(listed, call.output.columns))]
    if not listed:
        lines.append(Talk("note", NO_RUNS[bool(args.state or args.preset or args.limit == 0)]))
    if not args.ids and any(row.verdict for row in listed) and not session.pins().authority.keys:
        lines.append(Talk("note", _UNJUDGED))

    def quotas() -> list[QuotaPart]:
        from bridge.client.connection.quotas import quotas_of

        return quotas_of(session)

    return Answer(listed, lines, bus=session.bus_part, quotas=quotas)


def runners(call: Invocation[BusOptions]) -> Answer:
    """List the runners of the bus."""
    from bridge.client.connection.liveness import doubts, look

    session = call.connect()
    runners = look(session.bus, session.record, session.clock.now())
    lines: list[Line] = []
    for runner in runners:
        beacon = runner.beacon
        alive = beacon.state if runner.live or beacon.state == "stopped" else "gone"
        seen_text = f"seen {age_text(runner.age_s)} ago, queue {beacon.queue}"
        cells: list[tuple[str, str, str]] = [(beacon.runner, alive, seen_text)]
        cells += [("", label, clean_line(", ".join(words))) for label, words in _offers(runner)]
        lines += [Fitted(f"{name:<18} {label:<9} {text}", _TEXT_COLUMN) for name, label, text in cells]
    lines += [Talk("warning", clean_line(line)) for line in doubts(session.bus)]
    if not runners:
        awake = "it starts with the first request" if session.embedded else "no beacon on this bus"
        lines.append(Talk("note", f"no runner is awake: {awake}"))
    data = [
        {**runner.beacon.model_dump(mode="json"), "age_s": round(runner.age_s, 3), "live": runner.live}
        for runner in runners
    ]
    return Answer(data, lines, bus=session.bus_part)


def _offers(runner: SeenRunner) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield label and words of each further line about a runner."""
    from bridge.presets.installed import registry

    beacon = runner.beacon
    installed = registry()
    if beacon.capabilities:
        yield "can", beacon.capabilities
    if beacon.labels:
        yield "labels", beacon.labels
    here = tuple(name for name in beacon.presets if name in installed)
    ready = sum(preset.status == "ready" for preset in installed.values())
    yield "presets", (f"{len(here)} of the {ready} that can be asked for here",)
    if only := tuple(name for name in beacon.presets if name not in installed):
        yield "also", only
    if beacon.spooled:
        yield "late", tuple(short(run_id) for run_id in beacon.spooled)
