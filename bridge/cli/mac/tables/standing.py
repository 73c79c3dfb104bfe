"""`run --profile standing`: send the sittings of one question, see them through, and print what they say together."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.drafts import sittings_of
from bridge.cli.screen.answer import Answer, Line, Row, Talk
from bridge.cli.signals import DetachedError
from bridge.client.connection.session import BusSession
from bridge.client.document.quoting import StandingData
from bridge.client.document.untrusted import clean_line
from bridge.client.run.run import Run
from bridge.client.run.status import RunStatus
from bridge.client.send import sweep as sending
from bridge.client.send.draft import RequestDraft
from bridge.errors import UsageError
from bridge.ids import short
from bridge.launches.standing import SITTINGS_LEAST
from bridge.limits import SWEEP_MAX_COUNT
from bridge.run.outcomes import strongest

if TYPE_CHECKING:
    from bridge.cli.table.options import RunOptions


def check_standing(args: RunOptions) -> None:
    """Refuse what does not go together, before anything is sent.

    Raises:
        UsageError: too few or too many sittings, sittings of no standing claim, or an option for one run.
    """
    if args.profile != "standing":
        if args.sittings is not None:
            raise UsageError("--sittings is of a standing claim", remedy="add --profile standing")
        return
    count = sittings_of(args)
    if not SITTINGS_LEAST <= count <= SWEEP_MAX_COUNT:
        raise UsageError(f"got --sittings {count}; expected {SITTINGS_LEAST} to {SWEEP_MAX_COUNT}")
    names = ("follow", "confirms", "notify", "repeat", "require")
    given = {name: getattr(args, name) for name in names} | {"fail-if": args.fail_if}
    sending.refuse_options(given)


def run_standing(call: Invocation[RunOptions], session: BusSession, drafts: Sequence[RequestDraft]) -> Answer:
    """Send every sitting of a standing claim, or go on with those that were sent; with --wait see them through.

    Raises:
        UsageError: it asks several questions.
        NoRunnerError: no live runner would take them.
    """
    args = call.options
    if len(drafts) > 1:
        raise UsageError(
            f"a standing claim is of one question, and this line asks {len(drafts)}",
            remedy="name one value for each parameter",
        )
    if args.dry_run:
        return _show(session, sending.place_drafts(session, drafts, sittings_of(args), new=args.new))

    def warn(line: str) -> None:
        call.output.say("warn", line)

    slots = sending.decide(session, drafts, sittings_of(args), new=args.new, queue=args.queue, warn=warn)
    set_id = sending.id_of([slot.draft for slot in slots])
    try:
        sent = list(sending.send_all(session, slots, warn))
        runs = [call.run_on(session, sitting.sent.id) for sitting in sent]
        again = sum(sitting.reattached for sitting in sent)
        repeated = f", {again} of them sent before" if again else ""
        line = f" {short(set_id)} {drafts[0].preset}: {len(runs)} sittings{repeated}; the same line goes on with it"
        call.output.say("standing", line)
        if args.wait or args.wait_timeout is not None:
            return _see_through(call, set_id, runs)
    except DetachedError as detached:
        data = StandingData(set_id, drafts[0].preset, sending.runs_of(session, set_id), [])
        gone = Talk("detach", f" the sittings go on; the same line goes on with {short(set_id)}")
        return Answer(data, [gone], detached.exit_code, reason="detached", bus=session.bus_part)
    runs[0].wake()
    ids = [run.id for run in runs]
    return Answer(StandingData(set_id, drafts[0].preset, ids, []), ids, bus=session.bus_part)


def _see_through(call: Invocation[RunOptions], set_id: str, runs: Sequence[Run]) -> Answer:
    """Wait for every sitting in turn, each named as it ends, then say what they say together."""
    ended: list[RunStatus] = []
    _say_waits(call, runs, 0)
    for run in call.follow(runs, call.options.wait_timeout):
        ended.append(run.status())
        call.output.say(f"{len(ended)}/{len(runs)}", f" {run.short} {ended[-1].reason}")
        _say_waits(call, runs, len(ended))
    return _answer(set_id, runs, ended)


def _say_waits(call: Invocation[RunOptions], runs: Sequence[Run], at: int) -> None:
    """Say why a run waits that is waited for next."""
    for run in runs[at : at + 1]:
        if (waits := run.status(fetch=False)).state == "queued" and waits.reason == "pending":
            call.output.say(f"{at + 1}/{len(runs)}", f" {run.short} waits: {run.waiting_text()}")


def _answer(set_id: str, runs: Sequence[Run], ended: Sequence[RunStatus]) -> Answer:
    from bridge.client.evidence.judged import JudgedResult
    from bridge.client.evidence.quote import text_of
    from bridge.client.evidence.standing import StandingSet, is_sitting, quotation_of

    judged = [JudgedResult.of_run(run) for run, status in zip(runs, ended, strict=True) if status.result is not None]
    sittings = [result for result in judged if is_sitting(result) and result.verdict is not None]
    sittings_set = StandingSet.of(sittings) if sittings else None
    lines: list[Line] = []
    for claim in () if sittings_set is None else sittings_set.claims:
        answer = quotation_of(claim)
        lines.append(f"{clean_line(claim.id)}: {clean_line(claim.wording) or 'too few sittings'}")
        lines.append(Row(answer.word, clean_line(text_of(answer))))
    code = strongest(status.exit_code for status in ended)
    reason = next(status.reason for status in ended if status.exit_code == code)
    argv = ["kakeya-mac", "quote", short(set_id), *runs[0].settings.bus.words]
    lines.append(Talk("next", f"  {shlex.join(argv)}"))
    preset = "" if runs[0].known_request is None else runs[0].known_request.preset
    data = StandingData(set_id, preset, [run.id for run in runs], [] if sittings_set is None else sittings_set.data())
    return Answer(data, lines, code, reason=reason, bus=runs[0].bus_part, following=[argv])


def _show(session: BusSession, placed: Sequence[RequestDraft]) -> Answer:
    """Return what would be sent, and send nothing."""
    lines = []
    for draft in placed:
        number = 0 if draft.sweep is None else draft.sweep.repeat
        lines.append(Row("request", f"{draft.preset} ({draft.profile}), sitting {number + 1} of {len(placed)}"))
    lines.append(Row("sent", "nothing (--dry-run)"))
    return Answer(StandingData(None, placed[0].preset, [], []), lines, reason="dry_run", bus=session.bus_part)
