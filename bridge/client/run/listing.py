"""List runs: what this clone sent and what the bus shows, newest first. One listing, one claim read per shown run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.bus.views import Snapshot
from bridge.client.connection.session import BusSession
from bridge.ids import short, unix_ms
from bridge.records import Request
from bridge.run.state import RunState, state_of


@dataclass(frozen=True)
class Row:
    """One run in a listing; preset, profile and reason are None where they are not known without its result."""

    id: str
    state: RunState
    preset: str | None
    profile: str | None
    reason: str | None
    verdict: str | None
    runner: str | None
    created: str | None
    age_s: float
    fetched: bool

    def data(self) -> dict[str, Any]:
        """Return the row as `--json` shows it."""
        return {
            "id": self.id,
            "short": short(self.id),
            "state": self.state.value,
            "preset": self.preset,
            "profile": self.profile,
            "reason": self.reason,
            "verdict": self.verdict,
            "runner": self.runner,
            "created": self.created,
            "age_s": round(self.age_s, 3),
            "fetched": self.fetched,
        }


def rows(session: BusSession, *, state: str | None, preset: str | None, limit: int) -> list[Row]:
    """Return the newest runs that match."""
    seen = session.bus.snapshot()
    branches = {ref.id: ref.ref for ref in seen.requests}
    ids = sorted({*branches, *seen.claims, *session.store.ids()}, reverse=True)
    found: list[Row] = []
    for run_id in ids:
        if len(found) >= limit:
            break
        request = _request(session, run_id)
        name = request.preset if request is not None else _preset_of(branches.get(run_id), run_id)
        if preset is not None and name is not None and name != preset:
            continue
        row = _row(session, run_id, request, name, seen)
        if (state is None or row.state == state) and (preset is None or row.preset == preset):
            found.append(row)
    return found


def _row(session: BusSession, run_id: str, request: Request | None, preset: str | None, seen: Snapshot) -> Row:
    fetched = session.store.has_result(run_id)
    claim = session.bus.read_claim(run_id, seen.claims[run_id]) if run_id in seen.claims else None
    if claim is not None and claim.standing.refused:
        claim = None  # as if it were not there: `status` says why
    if claim is not None:
        state = state_of(claim.claim)
    elif fetched and run_id not in {ref.id for ref in seen.requests}:
        state = RunState.DONE
    else:
        state = state_of(None, requested=run_id in {ref.id for ref in seen.requests})
    verdict, reason = _verdict(session, run_id) if fetched else (None, None)
    return Row(
        id=run_id,
        state=state,
        preset=preset,
        profile=request.profile if request is not None else None,
        reason=claim.claim.reason if claim is not None else reason,
        verdict=verdict,
        runner=claim.claim.runner if claim is not None else None,
        created=request.created if request is not None else None,
        age_s=max(0.0, session.clock.now().timestamp() - unix_ms(run_id) / 1000),
        fetched=fetched,
    )


def _verdict(session: BusSession, run_id: str) -> tuple[str | None, str | None]:
    from bridge.client.run.result import ending, read_result
    from bridge.errors import IntegrityError

    try:
        result = read_result(session.store.read_result(run_id), run_id)
    except IntegrityError:
        return None, "does not verify"
    return (result.verdict.decision if result.verdict is not None else None), ending(None, result)


def _request(session: BusSession, run_id: str) -> Request | None:
    sent = session.store.sent(run_id)
    return sent.request() if sent is not None else None


def _preset_of(ref: str | None, run_id: str) -> str | None:
    """Return the preset in a branch name; a name is a hint, the request decides."""
    if ref is None:
        return None
    head = ref.split(f"-{run_id}", 1)[0]
    return head.rsplit("/", 1)[-1].removeprefix("mac-bridge-") or None
