"""`gc`: remove what is old here, and on request what is finished on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bridge.client.connection.session import BusSession
from bridge.client.run.states import state_of

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True)
class Removal:
    """Something that went, or would go."""

    kind: str
    name: str

    def data(self) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        return {"kind": self.kind, "name": self.name}


def tidy(session: BusSession, *, older_than_s: float, branches: bool, dry_run: bool) -> Iterator[Removal]:
    """Remove stored results and remembered requests of runs that are older; a live run is never touched."""
    store = session.store
    for run_id in sorted(store.ids()):
        if _age_s(session, run_id) < older_than_s or not _is_over(session, run_id):
            continue
        if store.has_result(run_id):
            yield Removal("result", str(store.folder(run_id)))
        if store.sent(run_id) is not None:
            yield Removal("request", run_id)
        if not dry_run:
            store.remove_result(run_id)
            store.forget(run_id)
    if branches:
        for name in session.bus.collect(older_than_s=older_than_s, dry_run=dry_run):
            yield Removal("ref", name)


def _is_over(session: BusSession, run_id: str) -> bool:
    state = state_of(session.bus.view(run_id))
    if state.name == "unknown":
        return True
    sent = session.store.sent(run_id)
    if state.name == "queued" and sent is not None:
        from bridge.request import expired

        return expired(sent.request(), session.clock.now())
    return state.terminal


def _age_s(session: BusSession, run_id: str) -> float:
    value = 0
    for char in run_id[:10]:
        value = value * 32 + _CROCKFORD.index(char)
    return session.clock.now().timestamp() - value / 1000
