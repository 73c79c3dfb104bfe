"""`run` with several values or repeats: send a sweep, see it through, and print its table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Answer, Line, Row, Talk
from bridge.cli.screen.run_view import without_unwanted
from bridge.cli.screen.table import Column, table_lines
from bridge.cli.signals import DetachedError
from bridge.client.connection.session import BusSession
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence import sweep as evidence
from bridge.client.send import sweep as sending
from bridge.client.send.draft import RequestDraft
from bridge.ids import short

if TYPE_CHECKING:
    from bridge.cli.table.options import RunOptions
    from bridge.client.document.parts import BusPart

_LEAST_CHARS: Final = 8  # of a cell that is cut


def run_sweep(call: Invocation[RunOptions], session: BusSession, drafts: Sequence[RequestDraft]) -> Answer:
    """Send one request a combination and repeat; with --wait see all of them through and print their table.

    Raises:
        UsageError: an option is for one run.
        NoRunnerError: no live runner would take them.
    """
    args = call.options
    sending.refuse_options({name: getattr(args, name) for name in ("follow", "confirms", "notify")})
    repeats = 1 if args.repeat is None else args.repeat
    if args.dry_run:
        return _show(session, sending.place_drafts(session, drafts, repeats, new=args.new))

    def warn(line: str) -> None:
        call.output.say("warn", line)

    slots = sending.decide(session, drafts, repeats, new=args.new, queue=args.queue, warn=warn)
    sweep_id = sending.id_of([slot.draft for slot in slots])
    try:
        sent = list(sending.send_all(session, slots, warn))
    except DetachedError as detached:
        runs = [call.run_on(session, run_id) for run_id in sending.runs_of(session, sweep_id)]
        return _detach(evidence.SweptRuns(sweep_id, runs), session.bus_part, detached)
    runs = [call.run_on(session, cell.sent.id) for cell in sent]
    again = sum(cell.reattached for cell in sent)
    repeated = f", {again} of them sent before" if again else ""
    line = f" {short(sweep_id)} {drafts[0].preset}: {len(runs)} runs{repeated}; the same line goes on with it"
    call.output.say("sweep", line)
    if args.wait or args.wait_timeout is not None:
        return _see_through(call, evidence.SweptRuns(sweep_id, runs))
    runs[0].wake()
    swept = evidence.SweptRuns(sweep_id, runs, [run.status(fetch=False) for run in runs])
    return Answer(swept.data(), [run.id for run in runs], bus=session.bus_part)


def _see_through(call: Invocation[RunOptions], sweep: evidence.SweptRuns) -> Answer:
    """Wait for every run in turn, each named as it ends; end in the strongest of their codes."""
    try:
        for run in call.follow(sweep.runs, call.options.wait_timeout):
            sweep.statuses.append(run.status(require=call.required()))
            number = f"{len(sweep.statuses)}/{len(sweep.runs)}"
            call.output.say(number, f" {run.short} {sweep.statuses[-1].reason}")
    except DetachedError as detached:
        return _detach(sweep, sweep.runs[0].bus_part, detached)
    return _answer(call, sweep)


def _detach(sweep: evidence.SweptRuns, bus: Callable[[], BusPart], detached: DetachedError) -> Answer:
    """Return what was sent; asks no bus, a signal is in a hurry."""
    gone = Talk("detach", f" the runs go on; the same line goes on with sweep {short(sweep.id)}")
    return Answer(sweep.data(), [gone], detached.exit_code, reason="detached", bus=bus)


def sweep_lines(sweep: evidence.SweptRuns, width: int | None) -> list[Line]:
    """Return what a sweep asks, its table as lines that fit a screen of so many characters, and why runs failed."""
    rows = sweep.rows
    shown = evidence.columns(rows)
    kinds = [Column(clean_line(column.name), least=_LEAST_CHARS, rank=column.rank) for column in shown]
    cells = [[clean_line(column.text(row)) for column in shown] for row in rows]
    failed = [Row(ids[0], clean_line(why)) for why, ids in sweep.failures().items()]
    return [Row("asked", clean_line(sweep.asked)), *table_lines(kinds, cells, width), *failed]


def _answer(call: Invocation[RunOptions], sweep: evidence.SweptRuns) -> Answer:
    lines: list[Line] = sweep_lines(sweep, call.output.columns)
    lines.append(Talk("note", evidence.EXPLORATORY))
    compare = ["kakeya-mac", "compare", short(sweep.id), *sweep.runs[0].settings.bus.words]
    lines.append(Talk("next", f"  {shlex.join(compare)}"))
    judged = [without_unwanted(status, call.options.fail_if) for status in sweep.statuses]
    sweep.statuses = [status for status, _ in judged]
    lines += [row for _, rows in judged for row in rows]
    message = next((status.message for status in sweep.statuses if status.reason == sweep.reason == "unwanted"), None)
    return Answer(
        sweep.data(), lines, sweep.exit_code, reason=sweep.reason, message=message, following=[compare],
        bus=sweep.runs[0].bus_part,
    )  # fmt: skip


def _show(session: BusSession, placed: Sequence[RequestDraft]) -> Answer:
    """Return what would be sent, and send nothing."""
    lines = []
    for draft in placed:
        params = ", ".join(f"{name} = {value}" for name, value in sorted(draft.params.items()))
        repeat = 0 if draft.sweep is None else draft.sweep.repeat
        lines.append(Row("request", f"{draft.preset} ({draft.profile}), repeat {repeat + 1}: {clean_line(params)}"))
    lines.append(Row("sent", "nothing (--dry-run)"))
    data = evidence.data_of_drafts([(draft.preset, dict(draft.params)) for draft in placed])
    return Answer(data, lines, reason="dry_run", bus=session.bus_part)
