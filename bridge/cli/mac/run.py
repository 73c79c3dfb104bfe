"""`run`, `attach`, `wait`, `cancel`, `retry`: everything that sends or waits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.drafts import drafts_of, show_draft
from bridge.cli.screen.answer import Answer, Line, Row, Talk, about_run
from bridge.cli.signals import DetachedError
from bridge.client.document.parts import WaitRow
from bridge.client.document.untrusted import clean_line
from bridge.client.run.run import Run
from bridge.client.send.submit import submit, submit_again
from bridge.errors import KakeyaError, UsageError
from bridge.run.asked import asked_text
from bridge.run.outcomes import strongest

if TYPE_CHECKING:
    from bridge.cli.table.command import Options
    from bridge.cli.table.options import AttachOptions, RetryOptions, RunIdOptions, RunOptions, WaitOptions


def run(call: Invocation[RunOptions]) -> Answer:
    """Send a request; with --wait or --follow see it through."""
    call.required()  # what cannot be required is said before anything is sent
    if call.options.fail_if is not None and not (_waits(call) or call.options.dry_run):
        raise UsageError(
            f"--fail-if {call.options.fail_if} is about how a run comes out, and this line does not wait for that",
            remedy="add --wait",
        )
    if call.options.load is not None and call.options.profile != "claim":
        raise UsageError("--load drawn is of a claim in one sitting", remedy="add --profile claim")
    _check_notify(call, waits=_waits(call))
    if call.options.profile == "standing" or call.options.sittings is not None:
        from bridge.cli.mac.tables.standing import check_standing

        check_standing(call.options)
    session = call.connect()
    drafts = drafts_of(call, session)
    if call.options.profile == "standing":
        from bridge.cli.mac.tables.standing import run_standing

        return run_standing(call, session, drafts)
    if len(drafts) > 1 or call.options.repeat is not None:
        from bridge.cli.mac.tables.sweep import run_sweep

        return run_sweep(call, session, drafts)
    draft = drafts[0]
    if call.options.dry_run:
        return show_draft(session, draft)
    sending = submit(session, draft, new=call.options.new, queue=call.options.queue, warn=_warner(call))
    return _after_sending(call, call.run_on(session, sending.sent.id, reattached=sending.reattached, just_sent=True))


def retry(call: Invocation[RetryOptions]) -> Answer:
    """Send the same request again under a new id, naming the one it repeats, or attach to the live run that does so."""
    call.required()
    earlier = call.find_on_bus(call.options.id)
    old = earlier.request
    if old is None:
        raise UsageError(f"the request of {earlier.id} cannot be read, so it cannot be repeated")
    if not earlier.may_be_repeated:
        state = earlier.status(fetch=False).state
        raise UsageError(f"{earlier.id} is still {state.word}", remedy=f"kakeya-mac attach {earlier.id}")
    sending = submit_again(earlier.bus, old, queue=call.options.queue, warn=_warner(call))
    again = call.run_on(earlier.bus, sending.sent.id, reattached=sending.reattached, just_sent=True)
    return _after_sending(call, again)


def attach(call: Invocation[AttachOptions]) -> Answer:
    """Wait for a run that was sent earlier."""
    call.required()
    _check_notify(call, waits=True)
    run = call.find_on_bus(call.options.id)
    run.reattached = True
    with naming(run):
        return _see_through(call, run)


def wait(call: Invocation[WaitOptions]) -> Answer:
    """Wait silently for runs; end in the strongest of their exit codes."""
    call.required()
    first = call.find_on_bus(call.options.ids[0], quiet=True)
    runs = [first, *(call.find_beside(first.bus, text) for text in call.options.ids[1:])]
    for run in runs:
        run.reattached = True
    for _ in call.follow(runs, call.options.wait_timeout):
        pass
    statuses = [run.status(require=call.required()) for run in runs]
    lines = [Row(status.reason, status.id) for status in statuses]
    code = strongest(status.exit_code for status in statuses)
    if len(statuses) == 1:
        status = first.with_actions(statuses[0]) if call.output.json else statuses[0]
        return about_run(first, status, lines, exit_code=code)
    data = [WaitRow(run.id, run.reason, run.exit_code) for run in statuses]
    reason = next(status.reason for status in statuses if status.exit_code == code)
    return Answer(data, lines, code, reason=reason, bus=first.bus_part)


def cancel(call: Invocation[RunIdOptions]) -> Answer:
    """Ask the host to cancel a run."""
    run = call.find_on_bus(call.options.id)
    status = run.cancel()
    if status.terminal:
        talk = Talk("run", f"{run.short} has already ended: {status.reason}")
    else:
        talk = Talk("run", f"{run.short} asked to cancel; it was {status.state.word}")
        status = run.cancel_job(status)
    return about_run(run, status, [talk, run.id])


def _warner(call: Invocation[Options]) -> Callable[[str], None]:
    return lambda line: call.output.say("warn", line)


def _waits(call: Invocation[RunOptions | RetryOptions]) -> bool:
    return bool(call.options.wait or call.options.follow or call.options.wait_timeout is not None)


def _after_sending(call: Invocation[RunOptions | RetryOptions], sent: Run) -> Answer:
    """Wait for a run that was just sent where the command line says so, else print its id."""
    with naming(sent):
        return _waited_or_named(call, sent)


@contextmanager
def naming(run: Run) -> Iterator[None]:
    """Let an error say which run it is about: the run was sent, and its id is not lost with the command."""
    try:
        yield
    except KakeyaError as error:
        error.run_id = run.id
        raise


def _waited_or_named(call: Invocation[RunOptions | RetryOptions], sent: Run) -> Answer:
    if _waits(call):
        return _see_through(call, sent)
    _name_run(call, sent)
    sent.wake()
    lines: list[Line] = [sent.id]
    if call.output.json:
        return about_run(sent, sent.with_actions(sent.status(require=call.required(), fetch=False)), lines)
    if sent.actions is not None and (view := sent.actions.view()) is not None:
        lines.append(Talk("actions", view.text()))
    return Answer(lines=lines)


def _see_through(call: Invocation[RunOptions | RetryOptions | AttachOptions], run: Run) -> Answer:
    from bridge.cli.screen.run_view import status_rows, without_unwanted
    from bridge.cli.screen.timeline import make_timeline, show_all

    command: str | None = getattr(call.options, "notify", None)
    try:
        _name_run(call, run)
        timeline = make_timeline(call.output, run.wall_limit_s, run.waiting_text, run.bus.clock.steady_s)
        show_all(
            timeline, run.follow(timeout_s=call.options.wait_timeout, log="lines" if call.options.follow else "last")
        )
        status = run.with_actions(run.status(require=call.required()))
    except DetachedError as detached:
        return _detached(run, detached.exit_code)
    except KakeyaError as error:
        if command is not None:
            from bridge.client.document.envelope import of_error

            error.run_id = run.id
            _notify(call, command, of_error(error, call.command.name))
        raise
    rows = status_rows(run, status, call.directory)
    status, unwanted = without_unwanted(status, getattr(call.options, "fail_if", None))
    answer = about_run(run, status, [*rows, *unwanted], exit_code=None)
    return answer if command is None else replace(answer, after=partial(_notify, call, command))


def _detached(run: Run, exit_code: int) -> Answer:
    """Return that a signal ended the wait while the run goes on; asks no bus, a signal is in a hurry."""

    def document(command: str) -> dict[str, Any]:
        from bridge.client.run.present import detached_document

        return detached_document(run, command, exit_code)

    return Answer(lines=[Talk("detach", f" the run goes on; resume: {run.resume}")], exit_code=exit_code,
                  document=document)  # fmt: skip


def _notify(call: Invocation[Options], command: str, document: Mapping[str, Any]) -> None:
    """Tell a program of the requester's how the wait ended; of a result once that is printed."""
    from bridge.client.run.notify import notify

    try:
        wrong = notify(command, document)
    except DetachedError:  # the wait is over: a detached run and a second document would be said of one that has ended
        wrong = "--notify was ended by a signal"
    if wrong is not None:
        call.output.say("warn", clean_line(wrong))


def _check_notify(call: Invocation[RunOptions | AttachOptions], *, waits: bool) -> None:
    """Refuse what could never be told, before anything is sent.

    Raises:
        UsageError: the command is none, the line does not wait, or there is no such program.
    """
    if call.options.notify is None:
        return
    from bridge.client.run.notify import argv_of

    program = argv_of(call.options.notify)[0]
    if not waits:
        raise UsageError("--notify tells how a wait ended, and this line does not wait", remedy="add --wait")
    if shutil.which(program) is None:
        raise UsageError(
            f"--notify: there is no program {program[:80]!r} that can be started here",
            remedy="name one by its path, or one on PATH; chmod +x makes a script one",
        )


def _name_run(call: Invocation[Options], run: Run) -> None:
    request_text = "" if run.request is None else clean_line(asked_text(run.request))
    again = "   already live: attached" if run.reattached and call.command.name != "attach" else ""
    call.output.say("run", f"{run.short} {request_text}   resume: {run.resume}{again}")
