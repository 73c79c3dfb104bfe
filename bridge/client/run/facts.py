"""What a run's status says to people and documents alike: where it ran, how long it took, what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bridge.client.document.parts import TimesPart, WherePart
from bridge.client.run.result import backend_of
from bridge.run.outcomes import OUTCOMES
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.client.run.run import Run
    from bridge.client.run.status import RunStatus

PROGRAM = "kakeya-mac"


def place_of(run: Run, status: RunStatus) -> WherePart:
    """Return where it ran, as far as that is known."""
    record = status.record
    runner = record.runner if record is not None else status.claim.runner if status.claim is not None else None
    backend = backend_of(status.result) if status.result is not None else None
    host = record.host if record is not None else None
    applied = record.sandbox if record is not None and record.commands else None
    return WherePart(
        runner=runner,
        local=run.embedded,
        host=host.name if host is not None else None,
        os=f"{host.os} {host.machine}" if host is not None else None,
        device=backend[1] if backend is not None else next(iter(host.devices), None) if host is not None else None,
        backend=backend[0] if backend is not None else None,
        sandbox=None if applied is None else applied.kind,
        no_sandbox_because=None if applied is None else applied.reason,
        uid=None if applied is None else applied.uid,
    )


def times_of(status: RunStatus) -> TimesPart:
    """Return the seconds of each phase."""
    record = status.record
    if record is None:
        return TimesPart()
    total = (parse_rfc3339(record.ended) - parse_rfc3339(record.created)).total_seconds()
    return TimesPart(queued=record.queue_s, running=record.wall_s, total=max(0.0, total))


def next_steps(run: Run, status: RunStatus) -> list[list[str]]:
    """Return the commands that make sense now, as argv lists that find the same bus."""
    return [[*argv, *run.settings.bus.words] for argv in _next(status)]


def _next(status: RunStatus) -> list[list[str]]:
    """Return the remedy of the table first, then what else a run that has not ended allows."""
    row = OUTCOMES.get(status.reason)
    remedy = [shlex.split(row.remedy.replace("ID", status.id))] if row is not None and row.remedy is not None else []
    if status.terminal:
        return remedy or _next_of_result(status)
    if status.reason == "pending":
        return [*remedy, [PROGRAM, "cancel", status.id]]
    attach = [PROGRAM, "attach", status.id]
    return remedy if attach in remedy else [*remedy, attach]


def _next_of_result(status: RunStatus) -> list[list[str]]:
    """Return what makes sense after a run whose program did its work."""
    request, result = status.request, status.result
    if result is None or status.verdict is None:
        return []
    claims = status.verdict.claims
    if not claims and result.kept:
        return [[PROGRAM, "open", status.id, "--html"]]
    if any(claim.citable for claim in claims):
        return [[PROGRAM, "quote", status.id], [PROGRAM, "verify", status.id]]
    if status.reason in {"passed", "below_required"} and request is not None and request.profile == "smoke":
        from bridge.client.run.rerun import words_again

        again = words_again(request, result.spec) if any(claim.role == "primary" for claim in claims) else None
        if again is not None:
            return [[PROGRAM, *again, "--profile", "claim", "--wait"]]
        return [[PROGRAM, "verify", status.id]]
    return [[PROGRAM, "report", status.id]] if result.reports else []
