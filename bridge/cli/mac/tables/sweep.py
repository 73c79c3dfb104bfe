"""`run` with several values or repeats: send a sweep, see it through, and print its table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.run_view import without_unwanted
from bridge.cli.signals import DetachedError
from bridge.client.connection.session import BusSession
from bridge.client.document.envelope import BusPart, of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence import sweep as evidence
from bridge.client.run.run import Run
from bridge.client.send import sweep as sending
from bridge.client.send.draft import RequestDraft
from bridge.ids import short


def run_sweep(call: Invocation, session: BusSession, drafts: Sequence[RequestDraft]) -> int:
    """Send one request a combination and repeat; with --wait see all of them through and print their table.

    Raises:
        UsageError: an option is for one run.
        NoRunnerError: no live runner would take them.
    """
    args = call.args
    sending.refuse_options({name: getattr(args, name) for name in ("follow", "confirms", "notify")})
    repeats = 1 if args.repeat is None else args.repeat
    if args.dry_run:
        return _show(call, session, sending.place_drafts(session, drafts, repeats, new=args.new))

    def warn(line: str) -> None:
        call.output.say("warn", line)

    slots = sending.decide(session, drafts, repeats, new=args.new, queue=args.queue, warn=warn)
    sweep_id = sending.id_of([slot.draft for slot in slots])
    try:
        sent = list(sending.send_all(session, slots, warn))
    except DetachedError as detached:
        runs = [call.run_on(session, run_id) for run_id in sending.runs_of(session, sweep_id)]
        return _detach(call, evidence.SweptRuns(sweep_id, runs), session.bus_part(), detached)
    runs = [call.run_on(session, one.sent.id) for one in sent]
    again = sum(one.reattached for one in sent)
    known = f", {again} of them sent before" if again else ""
    said = f" {short(sweep_id)} {drafts[0].preset}: {len(runs)} runs{known}; the same line goes on with it"
    call.output.say("sweep", said)
    if args.wait or args.wait_timeout is not None:
        return _see_through(call, evidence.SweptRuns(sweep_id, runs))
    runs[0].wake()
    for run in runs:
        call.output.data(run.id)
    found = evidence.SweptRuns(sweep_id, runs, [run.status(fetch=False) for run in runs])
    call.output.document(of_data("run", found.data(), bus=session.bus_part()))
    return 0


def _see_through(call: Invocation, sweep: evidence.SweptRuns) -> int:
    """Wait for every run in turn, each named as it ends; end in the strongest of their codes."""
    timeout_s, clock = call.args.wait_timeout, sweep.runs[0].bus.clock
    deadline_s = None if timeout_s is None else clock.steady_s() + timeout_s
    try:
        for run in sweep.runs:
            _follow(call, run, None if deadline_s is None else max(0.0, deadline_s - clock.steady_s()))
            sweep.found.append(run.status(require=call.required()))
            number = f"{len(sweep.found)}/{len(sweep.runs)}"
            call.output.say(number, f" {run.short} {sweep.found[-1].reason}")
    except DetachedError as detached:
        return _detach(call, sweep, sweep.runs[0].bus_part(), detached)
    return _print(call, sweep)


def _detach(call: Invocation, sweep: evidence.SweptRuns, bus: BusPart, detached: DetachedError) -> int:
    """Say what was sent; asks no bus, a signal is in a hurry."""
    call.output.say("detach", f" the runs go on; the same line goes on with sweep {short(sweep.id)}")
    call.output.document(of_data("run", sweep.data(), exit_code=detached.exit_code, reason="detached", bus=bus))
    return detached.exit_code


def _follow(call: Invocation, run: Run, timeout_s: float | None) -> None:
    """Wait for one run; only what goes wrong meanwhile is said."""
    for progress in run.follow(timeout_s=timeout_s):
        if progress.kind == "trouble":
            call.output.note(progress.lines[0])


def _print(call: Invocation, sweep: evidence.SweptRuns) -> int:
    for line in evidence.table(sweep.rows):
        call.output.data(line)
    call.output.say("note", evidence.EXPLORATORY)
    bus = sweep.runs[0].bus_part()
    compare = ["kakeya-mac", "compare", short(sweep.id), *sweep.runs[0].settings.bus.words]
    call.output.say("next", f"  {shlex.join(compare)}")
    sweep.found = [without_unwanted(call.output, one, call.args.fail_if) for one in sweep.found]
    message = next((one.message for one in sweep.found if one.reason == sweep.reason == "unwanted"), None)
    call.output.document(
        of_data("run", sweep.data(), exit_code=sweep.exit_code, reason=sweep.reason, bus=bus, next_argv=[compare],
                message=message)
    )  # fmt: skip
    return sweep.exit_code


def _show(call: Invocation, session: BusSession, placed: Sequence[RequestDraft]) -> int:
    """Print what would be sent, and send nothing."""
    for draft in placed:
        said = ", ".join(f"{name} = {value}" for name, value in sorted(draft.params.items()))
        repeat = 0 if draft.sweep is None else draft.sweep.repeat
        call.output.row("request", f"{draft.preset} ({draft.profile}), repeat {repeat + 1}: {clean_line(said)}")
    call.output.row("sent", "nothing (--dry-run)")
    data = evidence.data_of_drafts([(one.preset, dict(one.params)) for one in placed])
    call.output.document(of_data("run", data, reason="dry_run", bus=session.bus_part()))
    return 0
