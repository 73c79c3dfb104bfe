"""`gc`: remove old results and requests here, and on request refs of finished runs on the bus."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.client.connection.session import BusSession
from bridge.client.document.parts import RemovalRow
from bridge.client.run.status import state_of_view
from bridge.ids import unix_ms
from bridge.request import expired
from bridge.run.state import RunState


def tidy(session: BusSession, *, older_than_s: float, branches: bool, dry_run: bool) -> Iterator[RemovalRow]:
    """Remove stored results and remembered requests of runs that are older; a live run is never touched."""
    store = session.store
    for run_id in sorted(store.ids()):
        age_s = session.clock.now().timestamp() - unix_ms(run_id) / 1000
        if age_s < older_than_s or not _is_over(session, run_id):
            continue
        if store.has_result(run_id):
            yield RemovalRow("result", str(store.folder(run_id)))
        if store.sent(run_id) is not None:
            yield RemovalRow("request", run_id)
        if not dry_run:
            store.remove_result(run_id)
            store.forget(run_id)
    if branches:
        for name in session.bus.collect(older_than_s=older_than_s, dry_run=dry_run):
            yield RemovalRow("ref", name)


def _is_over(session: BusSession, run_id: str) -> bool:
    sent = session.store.sent(run_id)
    if sent is not None and sent.bus_id != session.record.bus_id:
        return session.store.has_result(run_id)  # whether it goes on, its own bus alone knows
    state = state_of_view(session.view(run_id))
    if state is RunState.QUEUED and sent is not None:
        return expired(sent.request(), session.clock.now())
    return state in {RunState.UNKNOWN, RunState.DONE}
