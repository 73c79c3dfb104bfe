"""A standing as the `--json` document; every field of it is derived, nothing is decided here."""

from __future__ import annotations

import shlex
from typing import Any

from bridge.client.document.envelope import (
    ActionsPart,
    AttemptsPart,
    ClaimPart,
    Envelope,
    FilesPart,
    FindingPart,
    HostRunnerPart,
    LogTail,
    Outcome,
    RequestPart,
    TimesPart,
    TrustPart,
    WherePart,
)
from bridge.client.document.untrusted import new_fence, tail
from bridge.client.run.result import backend_of, request_digest
from bridge.client.run.status import RunStatus
from bridge.client.run.stored import Origin
from bridge.ids import short
from bridge.records import Request
from bridge.run.outcomes import OUTCOMES
from bridge.system.clock import parse_rfc3339

LOG_TAIL_LINES = 40
PROGRAM = "kakeya-mac"


def document(origin: Origin, standing: RunStatus, command: str, *, exit_code: int | None = None) -> dict[str, Any]:
    """Return the document of a command about one run.

    Args:
        origin: where it is known from.
        standing: where it stands.
        command: the command's name.
        exit_code: what the command ends in, when that is not the run's own code.
    """
    result = standing.result
    verdict = result.verdict if result is not None else None
    return Envelope(
        command=command,
        id=standing.id,
        short=short(standing.id),
        state=standing.state.value,
        terminal=standing.terminal,
        outcome=outcome(standing, exit_code),
        request=request_part(standing.request, reattached=standing.reattached),
        trust=_trust(standing),
        attempts=_attempts(standing),
        bus=origin.bus_part(),
        where=where(origin, standing),
        actions=_actions(standing),
        times_s=times(standing),
        headline=verdict.headline if verdict is not None else None,
        claims=[ClaimPart(**_claim(claim.model_dump(mode="json"))) for claim in verdict.claims] if verdict else [],
        findings=[FindingPart(**finding.model_dump(mode="json")) for finding in verdict.findings] if verdict else [],
        files=_files(standing),
        log_tail=_log_tail(standing),
        next=next_steps(origin, standing),
    ).document()


def outcome(standing: RunStatus, exit_code: int | None = None) -> Outcome:
    """Return the outcome part."""
    result = standing.result
    record = result.record if result is not None else None
    verdict = result.verdict if result is not None else None
    return Outcome(
        exit_code=standing.exit_code if exit_code is None else exit_code,
        reason=standing.reason,
        executor_ok=record.executor_ok if record is not None else None,
        program_exit=record.program_exit if record is not None else None,
        gate_passed=verdict.decision != "rejected" if verdict is not None else None,
        verdict=verdict.decision if verdict is not None else None,
        required=standing.required,
        message=standing.message,
        remedy=standing.remedy,
        retryable=standing.reason in OUTCOMES and OUTCOMES[standing.reason].retryable,
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


def where(origin: Origin, standing: RunStatus) -> WherePart:
    """Return where it ran, as far as that is known."""
    record = standing.result.record if standing.result is not None else None
    runner = record.runner if record is not None else standing.claim.runner if standing.claim is not None else None
    backend = backend_of(standing.result) if standing.result is not None else None
    host = record.host if record is not None else None
    return WherePart(
        runner=runner,
        local=origin.embedded,
        host=host.name if host is not None else None,
        os=f"{host.os} {host.machine}" if host is not None else None,
        device=backend[1] if backend is not None else next(iter(host.devices), None) if host is not None else None,
        backend=backend[0] if backend is not None else None,
    )


def times(standing: RunStatus) -> TimesPart:
    """Return the seconds of each phase, from the record the runner wrote."""
    record = standing.result.record if standing.result is not None else None
    if record is None:
        return TimesPart()
    total = (parse_rfc3339(record.ended) - parse_rfc3339(record.created)).total_seconds()
    return TimesPart(queued=record.queue_s, running=record.wall_s, total=max(0.0, total))


def next_steps(origin: Origin, standing: RunStatus) -> list[list[str]]:
    """Return the commands that make sense now, as argv lists that find the same bus."""
    return [[*argv, *origin.settings.bus.words] for argv in _next(standing)]


def _next(standing: RunStatus) -> list[list[str]]:
    """Return the remedy of the table first, then what else a run that has not ended allows."""
    row = OUTCOMES.get(standing.reason)
    remedy = [shlex.split(row.remedy.replace("ID", standing.id))] if row is not None and row.remedy is not None else []
    if standing.terminal:
        return remedy or _next_of_result(standing)
    if standing.reason == "pending":
        return [*remedy, [PROGRAM, "cancel", standing.id]]
    attach = [PROGRAM, "attach", standing.id]
    return remedy if attach in remedy else [*remedy, attach]


def _next_of_result(standing: RunStatus) -> list[list[str]]:
    """Return what makes sense after a run whose program did its work."""
    request, result = standing.request, standing.result
    if result is None or result.verdict is None:
        return []
    claims = result.verdict.claims
    if any(claim.citable for claim in claims):
        return [[PROGRAM, "quote", standing.id], [PROGRAM, "verify", standing.id]]
    if standing.reason == "passed" and request is not None and request.profile == "smoke":
        if any(claim.role == "primary" for claim in claims):
            return [[PROGRAM, "run", request.preset, *_param_words(request), "--profile", "claim", "--wait"]]
        return [[PROGRAM, "verify", standing.id]]
    return [[PROGRAM, "report", standing.id]] if result.reports else []


def _param_words(request: Request) -> list[str]:
    words: list[str] = []
    for name, value in sorted(request.params.items()):
        words += ["-p", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


def _attempts(standing: RunStatus) -> AttemptsPart | None:
    record = standing.result.record if standing.result is not None else None
    if record is None or record.attempt is None:
        return None
    return AttemptsPart(number=record.attempt.number, earlier=list(record.attempt.earlier))


def _trust(standing: RunStatus) -> TrustPart | None:
    record = standing.result.record if standing.result is not None else None
    if record is None:
        return None
    return TrustPart(
        principal=record.principal,
        signer=record.signer,
        signed=record.signer is not None,
        code=None if record.code is None else record.code.trust_class,
        labels=list(record.labels),
    )


def _actions(standing: RunStatus) -> ActionsPart | None:
    view = standing.actions
    if view is None:
        return None
    runners = None if view.runners is None else [HostRunnerPart(name=r.name, online=r.online, busy=r.busy)
                                                for r in view.runners]  # fmt: skip
    return ActionsPart(url=view.url, status=view.status, conclusion=view.conclusion, ahead=view.ahead, runners=runners)


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    return {name: claim[name] for name in ClaimPart.model_fields}


def _files(standing: RunStatus) -> FilesPart | None:
    if standing.folder is None or standing.result is None:
        return None
    return FilesPart(folder=str(standing.folder), paths=sorted(standing.result.tree.files))


def _log_tail(standing: RunStatus) -> LogTail | None:
    if standing.result is None:
        return None
    last = tail(standing.result.log, LOG_TAIL_LINES)
    return LogTail(fence=new_fence(), earlier_lines=last.earlier_lines, lines=list(last.lines))


def detached_document(
    origin: Origin, run_id: str, request: Request | None, command: str, exit_code: int, *, reattached: bool
) -> dict[str, Any]:
    """Return the document of a command that was told to go while a run goes on; asks no bus, a signal is in a hurry."""
    attach = [PROGRAM, "attach", run_id, *origin.settings.bus.words]
    return Envelope(
        command=command,
        id=run_id,
        short=short(run_id),
        state=None,
        terminal=False,
        outcome=Outcome(
            exit_code=exit_code,
            reason="detached",
            message="the run goes on",
            remedy=shlex.join(attach),
            retryable=True,
        ),
        request=request_part(request, reattached=reattached),
        bus=origin.bus_part(),
        next=[attach],
    ).document()
