"""Delete refs of runs that ended long ago: branch, then log and start, then claim, each when the one before is gone.

In that order nothing is resurrected: as long as a request branch exists, its terminal claim does too. A claim keeps its
result reachable, so it goes only with a run that was archived. Knows nothing about why a run ended.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bridge.bus.refs import names
from bridge.bus.refs.claims import Claims
from bridge.bus.store.interface import RefStore, RefUpdate
from bridge.errors import BusError
from bridge.limits import REQUEST_DEAD_S
from bridge.request import cancelled_id_of, run_id_of
from bridge.system.clock import parse_rfc3339


@dataclass(frozen=True)
class EndedRun:
    """A terminal run, those of its refs that may go, and when it ended; `log` holds its start as well."""

    run_id: str
    branches: tuple[tuple[str, str], ...]
    log: tuple[tuple[str, str], ...]
    claim: tuple[tuple[str, str], ...]
    ended: str

    @property
    def refs(self) -> tuple[str, ...]:
        """The names of its refs, in the order in which they go."""
        return tuple(ref for ref, _ in (*self.branches, *self.log, *self.claim))


def branches_by_run(refs: Mapping[str, str]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the request and cancel branches of a listing, with their tips, by run id."""
    by_run: dict[str, list[tuple[str, str]]] = {}
    for ref, oid in refs.items():
        run_id = run_id_of(ref) or cancelled_id_of(ref)
        if run_id is not None:
            by_run.setdefault(run_id, []).append((ref, oid))
    return {run_id: tuple(sorted(branches)) for run_id, branches in by_run.items()}


def ended_runs(
    claims: Claims, prefix: str, refs: Mapping[str, str], now: dt.datetime, older_than_s: float
) -> Iterator[EndedRun]:
    """Yield the runs that ended at least `older_than_s` ago, and so long ago that a replayed request has expired.

    Their claims stay: their runners archive them first.
    """
    branches = branches_by_run(refs)
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
        if age_s >= max(older_than_s, REQUEST_DEAD_S):
            own = (names.log_ref(prefix, run_id), names.start_ref(prefix, run_id))
            logs = tuple((name, refs[name]) for name in own if name in refs)
            yield EndedRun(run_id, branches.get(run_id, ()), logs, (), view.claim.time)


def delete(store: RefStore, runs: Sequence[EndedRun]) -> Iterator[str]:
    """Delete the refs of ended runs by lease; yield each name that is gone."""
    left: set[str] = set()
    for stage in ("branches", "log", "claim"):
        doomed = {ref: (run.run_id, oid) for run in runs if run.run_id not in left for ref, oid in _refs(run, stage)}
        if not doomed:
            continue
        answers = store.push([RefUpdate(ref, None, oid) for ref, (_, oid) in doomed.items()])
        for ref, (run_id, _) in doomed.items():
            if answers.get(ref):
                yield ref
            else:
                left.add(run_id)


def _refs(run: EndedRun, stage: str) -> tuple[tuple[str, str], ...]:
    return {"branches": run.branches, "log": run.log, "claim": run.claim}[stage]
