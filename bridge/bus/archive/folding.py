"""Fold runs that ended into archives, a day at a time, and drop refs that an archive makes needless.

A runner folds what it ended, and what runners ended that have been silent for long. A day is folded once it is over and
nothing of it can be asked for again. A ref goes only after the archive that holds its run was pushed and read back from
the remote; by default only logs go, and claims whose request branch its sender deleted.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.bus.archive.days import DAY_MAX_BYTES, Archives, claims_in, day_of
from bridge.bus.content import commits
from bridge.bus.content.archive import archive_commit, read_archive, read_runs, write_part
from bridge.bus.refs import names
from bridge.bus.refs.claims import CHAIN_MAX_BYTES, Claims
from bridge.bus.refs.collect import EndedRun, branches_by_run
from bridge.bus.store.gather import Tip, WorkBudget
from bridge.bus.store.interface import MissingObjectError, RefStore, RefUpdate
from bridge.bus.store.swap import swap, tips_of
from bridge.bus.views import ClaimTip
from bridge.errors import FencedError, ObjectError
from bridge.limits import ARCHIVE_PART_RUNS, BEACON_DEAD_S, MIB, REQUEST_DEAD_S
from bridge.records.archive import ArchivedRun, ArchiveHead
from bridge.request import run_id_of
from bridge.system.clock import parse_rfc3339, rfc3339
from bridge.system.gitobjects import TreeEntry
from bridge.trust.seals import BusSeals

_DAY_S: Final = 24 * 3600.0
_READ_BACK: Final = "archive-back"
_READ_BACK_MAX_BYTES: Final = 16 * MIB


@dataclass(frozen=True)
class ArchiveOrder:
    """Who archives, and what may go.

    Attributes:
        runner: whose archives are written.
        now: the present, by this machine's clock.
        live: runners that were heard of lately; what the others ended long ago is folded as well.
        drop_after_s: the age from which request branches and claims of archived runs go; None: the owner drops none.
        dry_run: only say what would be done.
        ahead_s: by how many seconds that clock may be ahead, as others contradict it.
    """

    runner: str
    now: dt.datetime
    live: Collection[str] = ()
    drop_after_s: float | None = None
    dry_run: bool = False
    ahead_s: float = 0.0

    @property
    def earliest(self) -> dt.datetime:
        """The present by the clock that is the furthest behind: what is old by it is old by every clock."""
        return self.now - dt.timedelta(seconds=self.ahead_s)


@dataclass(frozen=True)
class DayListing:
    """The refs of one day's runs as they were listed.

    Attributes:
        claims: tips by run id.
        branches: request and cancel branches with their tips, by run id.
        logs: logs and starts with their tips, by run id.
    """

    day: str
    claims: Mapping[str, str]
    branches: Mapping[str, tuple[tuple[str, str], ...]]
    logs: Mapping[str, tuple[tuple[str, str], ...]]


def days_in(prefix: str, refs: Mapping[str, str]) -> list[DayListing]:
    """Return what a listing shows of each day that has claims, oldest first."""
    claims: dict[str, dict[str, str]] = {}
    logs: dict[str, tuple[tuple[str, str], ...]] = {}
    for ref, oid in refs.items():
        if (run_id := names.runner_id_of(prefix, "claim", ref)) is not None:
            claims.setdefault(day_of(run_id), {})[run_id] = oid
        for kind in ("log", "start"):
            if (run_id := names.runner_id_of(prefix, kind, ref)) is not None:
                logs[run_id] = (*logs.get(run_id, ()), (ref, oid))
    branches = branches_by_run(refs)
    return [
        DayListing(
            day,
            tips,
            {run_id: branches[run_id] for run_id in tips if run_id in branches},
            {run_id: logs[run_id] for run_id in tips if run_id in logs},
        )
        for day, tips in sorted(claims.items())
    ]


class Folding:
    """Folds the runs of one bus.

    Args:
        store: the remote.
        prefix: where the runners' refs are.
        claims: reads claims.
        archives: reads archives.
        seals: signs archives.
    """

    def __init__(self, store: RefStore, prefix: str, claims: Claims, archives: Archives, seals: BusSeals) -> None:
        self._store, self._prefix, self._claims = store, prefix, claims
        self._archives, self._seals = archives, seals
        self._looked: dict[str, tuple[object, ...]] = {}

    def due(self, days: Sequence[DayListing], order: ArchiveOrder) -> list[DayListing]:
        """Return the days that are over for good and show something that was not looked at yet, oldest first."""
        last = (order.earliest - dt.timedelta(seconds=REQUEST_DEAD_S)).strftime("%Y-%m-%d")
        return [day for day in days if day.day < last and self._looked.get(day.day) != _shows(day, order)]

    def fold(self, listed: DayListing, order: ArchiveOrder, budget: WorkBudget) -> tuple[list[str], list[EndedRun]]:
        """Archive what ended on a day; return the archives that were written, and the runs that are in them by now.

        Raises:
            FencedError: another process writes this archive.
            RemoteError: the remote did not answer.
        """
        claims = self._claims.newest(listed.claims, budget)
        if len(claims) < len(listed.claims) and budget.calls <= 0:
            return [], []
        ended = {run_id: tip for run_id, tip in sorted(claims.items()) if _is_to_fold(tip, order)}
        ref = names.archive_ref(self._prefix, order.runner, listed.day)
        folded = self._held(ref)
        new = [tip for run_id, tip in ended.items() if folded.get(run_id) != tip.oid]
        if order.dry_run:
            return [ref] if new else [], [self._ended(tip, listed) for tip in ended.values()]
        written = []
        for first in range(0, len(new), ARCHIVE_PART_RUNS):
            part = self._here(new[first : first + ARCHIVE_PART_RUNS])
            if part:
                self._add(ref, listed.day, order.runner, self._lines(part, listed), order.now)
                written.append(ref)
        folded = self._read_back(ref) if written else folded
        self._looked[listed.day] = _shows(listed, order)
        return written, [self._ended(tip, listed) for run_id, tip in ended.items() if folded.get(run_id) == tip.oid]

    def _ended(self, tip: ClaimTip, listed: DayListing) -> EndedRun:
        run_id = tip.claim.id
        claim = (names.claim_ref(self._prefix, run_id), tip.oid)
        branches, logs = listed.branches.get(run_id, ()), listed.logs.get(run_id, ())
        return EndedRun(run_id, branches, logs, (claim,), tip.claim.time)

    def _here(self, part: Sequence[ClaimTip]) -> list[ClaimTip]:
        """Make claims with their results readable here; what cannot be had, or breaks a bound, is left out."""
        refs = {names.claim_ref(self._prefix, tip.claim.id): tip.oid for tip in part}
        try:
            self._store.obtain(refs, max_bytes=CHAIN_MAX_BYTES * len(part))
            return list(part)
        except (ObjectError, MissingObjectError):
            return [tip for tip in part if self._is_here(tip)]

    def _is_here(self, tip: ClaimTip) -> bool:
        try:
            self._store.obtain({names.claim_ref(self._prefix, tip.claim.id): tip.oid}, max_bytes=CHAIN_MAX_BYTES)
        except (ObjectError, MissingObjectError):
            return False
        return True

    def _lines(self, part: Sequence[ClaimTip], listed: DayListing) -> list[tuple[str, ArchivedRun]]:
        """Return (claim commit, line) of runs whose claims are here."""
        lines = []
        with self._store.reader() as reader:
            for tip in part:
                run_id = tip.claim.id
                raw = reader.read(tip.oid, "commit", commits.COMMIT_MAX_BYTES)
                requests = [ref for ref, _ in listed.branches.get(run_id, ()) if run_id_of(ref) is not None]
                line = ArchivedRun(
                    id=run_id, ref=requests[0] if requests else None, claim=tip.claim, commit=raw.decode("latin-1")
                )
                lines.append((tip.oid, line))
        return lines

    def _add(self, ref: str, day: str, runner: str, lines: Sequence[tuple[str, ArchivedRun]], now: dt.datetime) -> None:
        """Push one more commit of an archive; what somebody else put in its place is replaced.

        Raises:
            FencedError: its ref moved meanwhile.
        """
        tip = self._tip(ref)
        old = self._archives.read([Tip(ref, tip)]) if tip is not None else []
        head = ArchiveHead(runner=runner, day=day, sequence=0, runs=0, parts=(), time=rfc3339(now))
        parents: tuple[str, ...] = ()
        before: tuple[TreeEntry, ...] = ()
        if old:
            self._store.obtain({ref: old[0].tip.oid}, max_bytes=DAY_MAX_BYTES)
            head = old[0].archive.head.evolve(sequence=old[0].archive.head.sequence + 1, time=rfc3339(now))
            parents, before = (old[0].tip.oid,), old[0].archive.parts
        part = write_part([line for _, line in lines])
        head = head.evolve(runs=head.runs + len(lines), parts=(*head.parts, hashlib.sha256(part).hexdigest()))
        parents = (*parents, *(oid for oid, _ in lines))
        made, objects = archive_commit(
            head,
            before,
            part,
            parents,
            self._seals.sign("archive", ref, runner, parents, head),
            by=self._store.committer,
        )
        self._store.write(objects)
        if not swap(self._store, [RefUpdate(ref, made.oid, tip)], authority=ref)[ref].landed:
            raise FencedError(f"{ref} was written by another process")

    def _tip(self, ref: str) -> str | None:
        return tips_of(self._store, [ref]).get(ref)

    def _held(self, ref: str) -> Mapping[str, str]:
        """Return the claim commits, by run id, that an archive of ours holds."""
        tip = self._tip(ref)
        days = [] if tip is None else self._archives.read([Tip(ref, tip)])
        return days[0].claims if days else {}

    def _read_back(self, ref: str) -> Mapping[str, str]:
        """Return what an archive holds as the remote gives it to somebody who has nothing yet.

        Raises:
            BusError: the remote does not give it.
        """
        tip = self._tip(ref)
        if tip is None:
            raise MissingObjectError(f"{self._store.route} acknowledged {ref} and did not keep it")
        try:
            store = self._store.isolate(_READ_BACK, [tip], max_bytes=_READ_BACK_MAX_BYTES, borrows=False)
            with store.reader() as reader:
                return claims_in(read_runs(reader, read_archive(reader, tip)))
        finally:
            self._store.drop(_READ_BACK)


def needless(runs: Sequence[EndedRun], order: ArchiveOrder) -> Iterator[EndedRun]:
    """Yield what may go of archived runs: the log, and the rest by age or where the sender deleted the branch."""
    for run in runs:
        age_s = (order.earliest - parse_rfc3339(run.ended)).total_seconds()
        may_go = not run.branches or (order.drop_after_s is not None and age_s >= order.drop_after_s)
        if may_go and age_s >= REQUEST_DEAD_S:
            yield run
        elif run.log:
            yield EndedRun(run.run_id, (), run.log, (), run.ended)


def _is_to_fold(tip: ClaimTip, order: ArchiveOrder) -> bool:
    """Return whether a claim ended its run and is this runner's to archive."""
    if tip.claim.state != "terminal" or tip.signature.refused:
        return False
    age_s = (order.earliest - parse_rfc3339(tip.claim.time)).total_seconds()
    return tip.claim.runner == order.runner or (tip.claim.runner not in order.live and age_s >= BEACON_DEAD_S)


def _shows(listed: DayListing, order: ArchiveOrder) -> tuple[object, ...]:
    """Return what a decision about a day depends on: it is looked at again when that is another."""
    age_s = (order.earliest - dt.datetime.fromisoformat(f"{listed.day}T00:00:00+00:00")).total_seconds() - _DAY_S
    dropped = order.drop_after_s is not None and age_s >= order.drop_after_s
    others = frozenset(order.live) if age_s >= BEACON_DEAD_S else None
    return (frozenset(listed.claims.items()), frozenset(listed.branches), others, dropped)
