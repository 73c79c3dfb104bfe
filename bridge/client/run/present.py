"""The `--json` document of one run; every field is derived from its status, nothing is decided here."""

from __future__ import annotations

import shlex
from typing import Any

from bridge.client.document.envelope import (
    AnswerPart,
    AttemptsPart,
    ClaimPart,
    Envelope,
    FilesPart,
    LogTail,
    Outcome,
    RequestPart,
    TrustPart,
)
from bridge.client.document.untrusted import new_fence, tail
from bridge.client.run.facts import PROGRAM, next_steps, place_of, times_of
from bridge.client.run.progress import progress_part
from bridge.client.run.quotation import quotation
from bridge.client.run.result import request_digest
from bridge.client.run.run import Run
from bridge.client.run.status import RunStatus
from bridge.ids import short
from bridge.records.request import Request
from bridge.records.verdict import Verdict
from bridge.run.outcomes import OUTCOMES
from bridge.trust.judgement import TrustAnswer

LOG_TAIL_LINES = 40


def document(run: Run, status: RunStatus, command: str, *, exit_code: int | None = None) -> dict[str, Any]:
    """Return the document of a command about one run.

    Args:
        run: the run.
        status: its status.
        command: the command's name.
        exit_code: what the command ends in, when that is not the run's own code.
    """
    verdict = status.verdict
    return Envelope(
        command=command,
        id=status.id,
        short=short(status.id),
        state=status.state.value,
        terminal=status.terminal,
        outcome=outcome(status, exit_code),
        request=request_part(status.request, reattached=status.reattached),
        trust=_trust(status),
        answer=None if status.answer is None else AnswerPart(word=status.answer.word, text=status.answer.text),
        attempts=_attempts(status),
        bus=run.bus_part(),
        where=place_of(run, status),
        actions=status.actions,
        times_s=times_of(status),
        quotas=run.quotas(),
        progress=progress_part(status.progress),
        headline=verdict.headline if verdict is not None else None,
        claims=claims_of(verdict, status.answer),
        findings=list(verdict.findings) if verdict else [],
        files=_files(status),
        log_tail=_log_tail(status),
        next=next_steps(run, status),
    ).document()


def outcome(status: RunStatus, exit_code: int | None = None) -> Outcome:
    """Return the outcome part."""
    record, verdict = status.record, status.verdict
    return Outcome(
        exit_code=status.exit_code if exit_code is None else exit_code,
        reason=status.reason,
        executor_ok=record.executor_ok if record is not None else None,
        program_exit=record.program_exit if record is not None else None,
        gate_passed=verdict.decision != "rejected" if verdict is not None else None,
        verdict=verdict.decision if verdict is not None else None,
        quotation=None if verdict is None else quotation(verdict, status.answer).word,
        required=None if status.required is None else str(status.required),
        message=status.message,
        remedy=status.remedy,
        retryable=status.reason in OUTCOMES and OUTCOMES[status.reason].retryable,
    )


def request_part(request: Request | None, *, reattached: bool) -> RequestPart | None:
    """Return the request part."""
    if request is None:
        return None
    return RequestPart(
        digest=request_digest(request.canonical()),
        preset=request.preset,
        params=dict(request.params),
        profile=request.profile,
        workload=request.workload.model_dump(mode="json") if request.workload is not None else None,
        ref=request.ref,
        created=request.created,
        expires=request.expires,
        retry_of=request.retry_of,
        reattached=reattached,
    )


def _attempts(status: RunStatus) -> AttemptsPart | None:
    record = status.record
    if record is None or record.attempt is None:
        return None
    return AttemptsPart(number=record.attempt.number, earlier=list(record.attempt.earlier))


def _trust(status: RunStatus) -> TrustPart | None:
    record = status.record
    if record is None:
        return None
    return TrustPart(
        principal=record.principal,
        signer=record.signer,
        signed=record.signer is not None,
        code=None if record.code is None else record.code.trust_class,
        labels=list(record.labels),
    )


def claims_of(verdict: Verdict | None, answer: TrustAnswer | None) -> list[ClaimPart]:
    """Return the claims of a verdict as `--json` shows them to a reader.

    Args:
        verdict: of the gate here; None where nothing was judged.
        answer: whether its runner may say what it says; None where that was not asked.
    """
    if verdict is None:
        return []
    return [ClaimPart(**dict(claim), quotation=quotation(verdict, answer, claim).word) for claim in verdict.claims]


def _files(status: RunStatus) -> FilesPart | None:
    if status.folder is None or status.result is None:
        return None
    kept_files = [f"reports/{name}" for name in status.result.kept]
    return FilesPart(folder=str(status.folder), paths=sorted(status.result.tree.files), kept=kept_files)


def _log_tail(status: RunStatus) -> LogTail | None:
    if status.result is None:
        return None
    last = tail(status.result.log, LOG_TAIL_LINES)
    return LogTail(fence=new_fence(), earlier_lines=last.earlier_lines, lines=list(last.lines))


def detached_document(run: Run, command: str, exit_code: int) -> dict[str, Any]:
    """Return the document of a command that a signal ended while a run goes on; asks no bus, a signal is in a hurry."""
    attach = [PROGRAM, "attach", run.id, *run.settings.bus.words]
    outcome = Outcome(
        exit_code=exit_code, reason="detached", message="the run goes on", remedy=shlex.join(attach), retryable=True
    )
    return Envelope(
        command=command,
        id=run.id,
        short=short(run.id),
        state=None,
        terminal=False,
        outcome=outcome,
        request=request_part(run.known_request, reattached=run.reattached),
        bus=run.bus_part(),
        next=[attach],
    ).document()
