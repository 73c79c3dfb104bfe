"""List runs: what this clone sent and what the bus shows, newest first. One listing, and a page's claims at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import ClaimTip, ListingWindow, Snapshot
from bridge.client.document.parts import RunRow
from bridge.ids import short, unix_ms
from bridge.run.asked import options_text
from bridge.run.state import RunState, state_of
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.client.clone.store import StoredEnding
    from bridge.client.connection.session import BusSession
    from bridge.records.request import Request

CLAIM_FETCHES: Final = 24  # fetches that one page of runs may cost, however many of its claims are none
WINDOW_PRESETS: Final = 256  # a listing names each preset some six times; with more of them the whole bus is listed


def rows(
    session: BusSession, *, state: str | None, preset: str | None, limit: int, archived: bool = False
) -> list[RunRow]:
    """Return the newest runs that match.

    Args:
        session: the bus, and what this clone remembers.
        state: only runs in this state; None: all.
        preset: only runs of this preset; None: all.
        limit: how many at most.
        archived: also runs that only the archives of the bus still hold.
    """
    snapshot = session.bus.snapshot() if archived else _listing(session, limit)
    listed = _listed(session, snapshot, state=state, preset=preset, limit=limit)
    if archived:
        listed += _archived(session, snapshot, state=state, preset=preset, limit=limit)
    return sorted(listed, key=lambda row: row.id, reverse=True)[:limit]


def _archived(
    session: BusSession, snapshot: Snapshot, *, state: str | None, preset: str | None, limit: int
) -> list[RunRow]:
    """Return the newest archived runs that match and are listed nowhere else."""
    if state not in {None, RunState.DONE.value}:
        return []
    listed_ids = {*snapshot.claims, *(ref.id for ref in snapshot.requests), *session.store.ids()}
    archived: list[RunRow] = []
    for run in session.bus.archived():
        if len(archived) >= limit:
            break
        run_id = run.tip.claim.id
        if run_id not in listed_ids and preset in {None, name := _preset_of(run.ref, run_id)}:
            archived.append(_row(session, run_id, None, name, requested=False, claim=run.tip))
    return archived


def _listed(
    session: BusSession, snapshot: Snapshot, *, state: str | None, preset: str | None, limit: int
) -> list[RunRow]:
    """Return the newest matching runs that the bus lists or this clone knows."""
    branches = {ref.id: ref.ref for ref in snapshot.requests}
    ids = sorted({*branches, *snapshot.claims, *session.store.ids()}, reverse=True)
    listed: list[RunRow] = []
    claims: dict[str, ClaimTip] = {}
    for number, run_id in enumerate(ids):
        if len(listed) >= limit:
            break
        if number % limit == 0:  # as many at a time as are shown: what is left out by a filter makes room for more
            part = {
                claimed_id: snapshot.claims[claimed_id]
                for claimed_id in ids[number : number + limit]
                if claimed_id in snapshot.claims
            }
            claims |= session.bus.newest_claims(part, WorkBudget(CLAIM_FETCHES))
        request = _request(session, run_id)
        name = request.preset if request is not None else _preset_of(branches.get(run_id), run_id)
        if preset is not None and name is not None and name != preset:
            continue
        row = _row(session, run_id, request, name, requested=run_id in branches, claim=claims.get(run_id))
        if (state is None or row.state == state) and (preset is None or row.preset == preset):
            listed.append(row)
    return listed


def _listing(session: BusSession, limit: int) -> Snapshot:
    """Return a listing of the last days where that shows enough runs, else of the whole bus."""
    now_ms = int(session.clock.now().timestamp() * 1000)
    if session.embedded:
        return session.bus.snapshot()
    window = ListingWindow(now_ms, _preset_names(session, limit))
    if len(window.presets) > WINDOW_PRESETS:
        return session.bus.snapshot()
    recent = session.bus.snapshot(window)
    return recent if len({*recent.claims, *(ref.id for ref in recent.requests)}) >= limit else session.bus.snapshot()


def _preset_names(session: BusSession, limit: int) -> frozenset[str]:
    """Return the presets whose branches may be on the bus: installed, offered by a runner, or last asked for here."""
    from bridge.presets.names import installed_names

    offered = (name for runner in session.runners() for name in runner.beacon.presets)
    newest = sorted(session.store.ids(), reverse=True)[:limit]
    sent = (request.preset for run_id in newest if (request := _request(session, run_id)) is not None)
    return frozenset((*installed_names(), *offered, *sent))


def _row(
    session: BusSession,
    run_id: str,
    request: Request | None,
    preset: str | None,
    *,
    requested: bool,
    claim: ClaimTip | None,
) -> RunRow:
    fetched = session.store.has_result(run_id)
    if claim is not None and claim.signature.refused:
        claim = None  # as if it were not there: `status` says why
    if claim is not None:
        state = state_of(claim.claim)
    elif fetched and not requested:
        state = RunState.DONE
    else:
        state = state_of(None, requested=requested)
    stored = session.store.read_ending(run_id) if fetched else None
    asked_s, now_s = unix_ms(run_id) / 1000, session.clock.now().timestamp()
    return RunRow(
        id=run_id,
        short=short(run_id),
        state=state,
        preset=preset,
        profile=request.profile if request is not None else None,
        reason=claim.claim.reason if claim is not None else None if stored is None else stored.reason,
        verdict=None if stored is None else stored.decision,
        runner=claim.claim.runner if claim is not None else None,
        created=request.created if request is not None else None,
        age_s=round(max(0.0, now_s - asked_s), 3),
        fetched=fetched,
        took_s=_took_s(state, asked_s, now_s, claim, stored),
        metric=None if stored is None else stored.metric,
        options=None if request is None else options_text(request),
        asked_by=stored.asked_by if stored is not None else None if request is None else request.principal,
    )


def _took_s(
    state: RunState, asked_s: float, now_s: float, claim: ClaimTip | None, stored: StoredEnding | None
) -> float | None:
    """Return how long a run took, or has taken so far; None where nothing says so."""
    if not state.terminal:
        return None if state is RunState.UNKNOWN else round(max(0.0, now_s - asked_s), 3)
    ended = claim.claim.time if claim is not None else None if stored is None else stored.ended
    return None if ended is None else round(max(0.0, parse_rfc3339(ended).timestamp() - asked_s), 3)


def _request(session: BusSession, run_id: str) -> Request | None:
    sent = session.store.sent(run_id)
    return sent.request() if sent is not None else session.store.stored_request(run_id)


def _preset_of(ref: str | None, run_id: str) -> str | None:
    """Return the preset in a branch name; a name is a hint, the request decides."""
    if ref is None:
        return None
    head = ref.split(f"-{run_id}", 1)[0]
    return head.rsplit("/", 1)[-1].removeprefix("mac-bridge-") or None
