"""`verify`: check results without trusting whoever shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import first_row, pins_of, runs_of_set
from bridge.cli.screen.answer import Answer, Line, Row
from bridge.client.clone.store import Store, holds_result, id_in
from bridge.client.connection.pins import Pins, pins
from bridge.client.document.quoting import CheckRow, VerifyData
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence import verify as checking
from bridge.client.evidence.quote import text_of
from bridge.client.evidence.standing import StandingSet, is_sitting, quotation_of
from bridge.client.run.quotation import quotation
from bridge.client.run.run import find_stored
from bridge.errors import BusMovedError, InfrastructureError, RouteMissingError, RunNotFoundError, UsageError

if TYPE_CHECKING:
    from bridge.cli.table.options import VerifyOptions


_OF_A_RESULT: Final = ("manifest.json", "run.json", "request.json")
_WORDS: Final = {"ok": "ok", "warn": "not checked", "fail": "FAILED"}


def verify(call: Invocation[VerifyOptions]) -> Answer:
    """Check results; exit 0 where a key that may say so signed them, else in the code of the answer."""
    verifications = [_verification(call, what) for what in runs_of_set(call, call.options.what)]
    standing = _standing(verifications)
    verification = verifications[0] if len(verifications) == 1 else checking.together(verifications)
    lines: list[Line] = [
        first_row(each.run_id, each.verdict, each.answer) for each in verifications if each.run_id is not None
    ]
    lines += [
        Row(_WORDS[check.level], f"{clean_line(check.name)}: {clean_line(check.text)}") for check in verification.checks
    ]
    for claim in () if standing is None else standing.claims:
        lines.append(Row("standing", f"{clean_line(claim.id)}: {clean_line(claim.wording) or 'too few sittings'}"))
        lines.append(Row("", clean_line(text_of(quotation_of(claim)))))
    name = verification.run_id or verification.source
    code, reason, verdict = verification.exit_code, verification.reason, verification.verdict
    text = verification.answer.text
    if code == 0:
        lines.append(Row("verified", f"{name}   {clean_line(text)}"))
    else:
        broken = sum(check.level == "fail" for check in verification.checks)
        counted = f"   {broken} of {len(verification.checks)} checks failed" if broken else ""
        label = verification.answer.shown if reason == verification.answer.word else reason
        lines.append(Row(label.upper(), f" {name}   {clean_line(text)}{counted}"))
    answer = verification.answer
    data = VerifyData(
        verification.source, verification.run_id, verification.ok, answer.word == "verified", answer.word,
        None if verdict is None else quotation(verdict, answer).word,
        [CheckRow(check.name, check.level != "fail", check.level, check.text) for check in verification.checks],
        [] if standing is None else standing.data(),
    )  # fmt: skip
    return Answer(data, lines, code, reason=reason, message=None if code == 0 else text)


def _standing(verifications: Sequence[checking.Verification]) -> StandingSet | None:
    """Return what results say together that are all sittings; None where one is no sitting."""
    judged = [each.judged for each in verifications if each.judged is not None]
    if len(judged) < len(verifications) or not all(
        is_sitting(result) and result.verdict is not None for result in judged
    ):
        return None
    return StandingSet.of(judged)


def _verification(call: Invocation[VerifyOptions], what: str) -> checking.Verification:
    option = tuple(call.options.runner_key or ())
    folder = Path(call.directory, what)
    if holds_result(folder):
        if folder.is_dir() and not any((folder / name).exists() for name in _OF_A_RESULT):
            raise UsageError(
                f"{what} holds nothing of a result; expected a folder that `kakeya-mac fetch` wrote",
                remedy="kakeya-mac ls",
            )
        return checking.verify_folder(folder, pins_of(call, id_in(folder), option))
    settings = call.settings()
    top = settings.repository.top if settings.repository is not None else None
    if "/" in what:
        if top is None or what.startswith(("/", ".")):  # as no branch is named
            state = "is no result" if folder.exists() else "is not there"
            raise UsageError(
                f"{what} {state}{', and there is no git clone whose branch it could be' if top is None else ''}",
                remedy="name a folder or file that `kakeya-mac fetch` wrote",
            )
        from bridge.client.clone.git_door import read_branch_result

        return checking.verify(read_branch_result(top, what), pins(settings, option=option), source=what)
    try:
        run = call.find_on_bus(what, quiet=True)
        return checking.verify_id(run.bus, run.id, run.bus.pins(option))
    except (BusMovedError, InfrastructureError, RouteMissingError, RunNotFoundError) as error:
        here = _from_here(call, what, pins_of(call, what, option))
        if here is None:
            raise
        call.output.say("note", f"the bus was not asked: {error.message}")
        return here


def _from_here(call: Invocation[VerifyOptions], what: str, trusted: Pins) -> checking.Verification | None:
    """Return the verification of a run by what this clone has of it, a stored result or a request branch."""
    settings = call.settings(what)
    stored = find_stored(settings, what, call.environment, call.output.say)
    if stored is not None:
        store = Store(settings.state_dir)
        return checking.verify(
            store.read_result(stored.id), trusted, source=str(store.folder(stored.id)), run_id=stored.id
        )
    top = settings.repository.top if settings.repository is not None else None
    from bridge.client.clone.git_door import find_request_branch, read_branch_result

    branch = None if top is None else find_request_branch(top, what)
    if top is None or branch is None:
        return None
    return checking.verify(read_branch_result(top, branch.name), trusted, source=branch.name, run_id=branch.run_id)
