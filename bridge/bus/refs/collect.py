"""Delete the refs of runs that ended long ago: branch, then log, then claim, each only when the one before is gone.

In that order nothing is resurrected: as long as a request branch exists, its terminal claim does too. Deleting a ref
does not unpublish its objects. Knows nothing about why a run ended.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.bus.refs import names
from bridge.bus.refs.claims import Claims
from bridge.bus.store.interface import RefStore, RefUpdate
from bridge.errors import BusError
from bridge.limits import CLOCK_SKEW_MAX_S, EXPIRY_MAX_S
from bridge.request import cancelled_id_of, run_id_of
from bridge.system.clock import parse_rfc3339

# No request is valid for longer, so after this its bytes pushed again are expired and run nothing.
GRACE_S: Final = EXPIRY_MAX_S + 2 * CLOCK_SKEW_MAX_S


@dataclass(frozen=True)
class EndedRun:
    """A terminal run and the refs it still has."""

    run_id: str
    branches: tuple[tuple[str, str], ...]
    log: tuple[tuple[str, str], ...]
    claim: tuple[str, str]


def ended_runs(
    claims: Claims, prefix: str, refs: Mapping[str, str], now: dt.datetime, older_than_s: float
) -> Iterator[EndedRun]:
    """Yield the runs that ended at least `older_than_s` ago, and so long ago that a replayed request has expired."""
    branches: dict[str, list[tuple[str, str]]] = {}
    for ref, oid in refs.items():
        run_id = run_id_of(ref) or cancelled_id_of(ref)
        if run_id is not None:
            branches.setdefault(run_id, []).append((ref, oid))
    for ref, oid in refs.items():
        run_id = names.runner_id_of(prefix, "claim", ref)
        if run_id is None:
            continue
        try:
            view = claims.read(run_id, oid)
        except BusError:  # an unreadable claim may be a newer version's: keep it
            continue
        if view is None or view.claim.state != "terminal" or view.signature.refused:
            continue
        age_s = (now - parse_rfc3339(view.claim.time)).total_seconds()
        log = names.log_ref(prefix, run_id)
        if age_s >= max(older_than_s, GRACE_S):
            yield EndedRun(
                run_id,
                tuple(sorted(branches.get(run_id, []))),
                ((log, refs[log]),) if log in refs else (),
                (ref, oid),
            )


def delete(store: RefStore, runs: list[EndedRun]) -> Iterator[str]:
    """Delete the refs of ended runs by lease; yield each name that is gone."""
    kept: set[str] = set()
    for stage in ("branches", "log", "claim"):
        wanted = {ref: (run.run_id, oid) for run in runs if run.run_id not in kept for ref, oid in _refs(run, stage)}
        if not wanted:
            continue
        said = store.push([RefUpdate(ref, None, oid) for ref, (_, oid) in wanted.items()])
        for ref, (run_id, _) in wanted.items():
            if said.get(ref):
                yield ref
            else:
                kept.add(run_id)


def _refs(run: EndedRun, stage: str) -> tuple[tuple[str, str], ...]:
    return {"branches": run.branches, "log": run.log, "claim": (run.claim,)}[stage]
