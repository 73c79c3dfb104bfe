"""`run`, `attach`, `wait`, `cancel`, `retry`: everything that sends or waits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.drafts import drafts_of, show_draft
from bridge.cli.screen.run_view import print_status, without_unwanted
from bridge.cli.screen.timeline import make_timeline, show_all
from bridge.cli.signals import DetachedError
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.run.notify import argv_of, notify
from bridge.client.run.present import detached_document, document
from bridge.client.run.run import Run
from bridge.client.send.submit import submit, submit_again
from bridge.errors import KakeyaError, UsageError
from bridge.run.asked import asked_text
from bridge.run.outcomes import strongest


def run(call: Invocation) -> int:
    """Send a request; with --wait or --follow see it through."""
    call.required()  # what cannot be required is said before anything is sent
    if call.args.fail_if is not None and not (_waits(call) or call.args.dry_run):
        raise UsageError(
            f"--fail-if {call.args.fail_if} is about how a run comes out, and this line does not wait for that",
            remedy="add --wait",
        )
    _check_notify(call, waits=_waits(call))
    if call.args.profile == "standing" or call.args.sittings is not None:
        from bridge.cli.mac.tables.standing import check_standing

        check_standing(call.args)
    session = call.connect()
    drafts = drafts_of(call, session)
    if call.args.profile == "standing":
        from bridge.cli.mac.tables.standing import run_standing

        return run_standing(call, session, drafts)
    if len(drafts) > 1 or call.args.repeat is not None:
        from bridge.cli.mac.tables.sweep import run_sweep

        return run_sweep(call, session, drafts)
    draft = drafts[0]
    if call.args.dry_run:
        return show_draft(call, session, draft)
    sending = submit(session, draft, new=call.args.new, queue=call.args.queue, warn=_warner(call))
    return _after_sending(call, call.run_on(session, sending.sent.id, reattached=sending.reattached, just_sent=True))


def retry(call: Invocation) -> int:
    """Send the same request again under a new id, naming the one it repeats."""
    call.required()
    earlier = call.find_on_bus(call.args.id)
    old = earlier.request
    if old is None:
        raise UsageError(f"the request of {earlier.id} cannot be read, so it cannot be repeated")
    if not earlier.may_be_repeated:
        state = earlier.status(fetch=False).state
        raise UsageError(f"{earlier.id} is still {state.word}", remedy=f"kakeya-mac attach {earlier.id}")
    sending = submit_again(earlier.bus, old, queue=call.args.queue, warn=_warner(call))
    return _after_sending(call, call.run_on(earlier.bus, sending.sent.id, just_sent=True))


def attach(call: Invocation) -> int:
    """Wait for a run that was sent earlier."""
    call.required()
    _check_notify(call, waits=True)
    found = call.find_on_bus(call.args.id)
    found.reattached = True
    with naming(found):
        return _see_through(call, found)


def wait(call: Invocation) -> int:
    """Wait silently for runs; end in the strongest of their exit codes."""
    call.required()
    first = call.find_on_bus(call.args.ids[0], quiet=True)
    runs = [first, *(call.find_beside(first.bus, text) for text in call.args.ids[1:])]
    timeout_s, clock = call.args.wait_timeout, first.bus.clock
    deadline_s = None if timeout_s is None else clock.steady_s() + timeout_s
    for one in runs:
        one.reattached = True
        left_s = None if deadline_s is None else max(0.0, deadline_s - clock.steady_s())
        for progress in one.follow(timeout_s=left_s):
            if progress.kind == "trouble":
                call.output.note(progress.lines[0])
    found = [one.status(require=call.required()) for one in runs]
    for status in found:
        call.output.row(status.reason, status.id)
    code = strongest(status.exit_code for status in found)
    if len(found) == 1:
        status = first.with_actions(found[0]) if call.output.json else found[0]
        call.output.document(document(first, status, "wait", exit_code=code))
        return code
    data = [{"id": one.id, "reason": one.reason, "exit_code": one.exit_code} for one in found]
    reason = next(status.reason for status in found if status.exit_code == code)
    call.output.document(of_data("wait", data, exit_code=code, reason=reason, bus=first.bus_part()))
    return code


def cancel(call: Invocation) -> int:
    """Ask the host to cancel a run."""
    found = call.find_on_bus(call.args.id)
    status = found.cancel()
    if status.terminal:
        call.output.say("run", f"{found.short} has already ended: {status.reason}")
    else:
        call.output.say("run", f"{found.short} asked to cancel; it was {status.state.word}")
        status = found.cancel_job(status)
    call.output.data(found.id)
    call.output.document(document(found, status, "cancel", exit_code=0))
    return 0


def _warner(call: Invocation) -> Callable[[str], None]:
    return lambda line: call.output.say("warn", line)


def _waits(call: Invocation) -> bool:
    return bool(call.args.wait or call.args.follow or call.args.wait_timeout is not None)


def _after_sending(call: Invocation, sent: Run) -> int:
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


def _waited_or_named(call: Invocation, sent: Run) -> int:
    if _waits(call):
        return _see_through(call, sent)
    _name_run(call, sent)
    sent.wake()
    call.output.data(sent.id)
    if call.output.json:
        status = sent.with_actions(sent.status(require=call.required(), fetch=False))
        call.output.document(document(sent, status, call.command.name, exit_code=0))
    elif sent.actions is not None and (view := sent.actions.view()) is not None:
        call.output.say("actions", view.text())
    return 0


def _see_through(call: Invocation, found: Run) -> int:
    try:
        _name_run(call, found)
        timeline = make_timeline(call.output, found.wall_limit_s, found.waiting_text, found.bus.clock.steady_s)
        show_all(timeline, found.follow(timeout_s=call.args.wait_timeout, log="lines" if call.args.follow else "last"))
        status = found.with_actions(found.status(require=call.required()))
    except DetachedError as detached:
        call.output.say("detach", f" the run goes on; resume: {found.resume}")
        if call.output.json:
            call.output.document(detached_document(found, call.command.name, detached.exit_code))
        return detached.exit_code
    print_status(call.output, found, status, call.directory)
    status = without_unwanted(call.output, status, getattr(call.args, "fail_if", None))
    shown = document(found, status, call.command.name)
    call.output.document(shown)
    if (command := getattr(call.args, "notify", None)) is not None and (wrong := notify(command, shown)) is not None:
        call.output.say("warn", clean_line(wrong))
    return status.exit_code


def _check_notify(call: Invocation, *, waits: bool) -> None:
    """Refuse what could never be told, before anything is sent.

    Raises:
        UsageError: the command is none, the line does not wait, or there is no such program.
    """
    if call.args.notify is None:
        return
    program = argv_of(call.args.notify)[0]
    if not waits:
        raise UsageError("--notify tells how a wait ended, and this line does not wait", remedy="add --wait")
    if shutil.which(program) is None:
        raise UsageError(
            f"--notify: there is no program {program[:80]!r} that can be started here",
            remedy="name one by its path, or one on PATH; chmod +x makes a script one",
        )


def _name_run(call: Invocation, found: Run) -> None:
    asked = "" if found.request is None else clean_line(asked_text(found.request))
    again = "   already live: attached" if found.reattached and call.command.name != "attach" else ""
    call.output.say("run", f"{found.short} {asked}   resume: {found.resume}{again}")
