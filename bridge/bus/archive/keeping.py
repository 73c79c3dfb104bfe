"""Keep the archives of a bus: fold the days that are due, drop what became needless, and read across both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final

from bridge.bus.archive.days import Archives, day_of
from bridge.bus.archive.folding import ArchiveOrder, Folding, days_in, needless
from bridge.bus.refs import names
from bridge.bus.refs.claims import Claims
from bridge.bus.refs.collect import delete
from bridge.bus.store.gather import Tip, WorkBudget
from bridge.bus.store.interface import RefStore
from bridge.bus.views import ArchivedClaim, ClaimTip, Neighbours
from bridge.ids import unix_ms
from bridge.records.bus import BusRecord

_DAYS_READ: Final = 16  # days of archives that are read for the neighbours of one run
_LOOKED_MAX_COUNT: Final = 512  # claims that are looked at for them, whoever pushed them
_PART_COUNT: Final = 64  # so many at a time
_LOOK_CALLS: Final = 256  # fetches: one for many of them, and one for each that is too large to be a claim


def keep(
    store: RefStore, record: BusRecord, folding: Folding, order: ArchiveOrder, budget: WorkBudget
) -> Iterator[str]:
    """Archive what is due and drop what may go, oldest day first; yield each archive written and each ref deleted.

    Args:
        store: the remote.
        record: the bus record.
        folding: folds days.
        order: for whom.
        budget: what may be spent on reading claims.

    Raises:
        FencedError: another process archives in this runner's name.
        RemoteError: the remote did not answer.
    """
    prefixes = [of(record.prefix, "") for of in (names.claim_ref, names.start_ref, names.log_ref)]
    refs = store.list([*prefixes, *names.listing_prefixes(record.request_branches)]).refs
    for day in folding.due(days_in(record.prefix, refs), order):
        if budget.calls <= 0 or budget.stopping():
            return
        written, folded = folding.fold(day, order, budget)
        yield from written
        gone = list(needless(folded, order))
        yield from (ref for run in gone for ref in run.refs) if order.dry_run else delete(store, gone)


def nearest(
    archives: Archives, claims: Claims, listed: Mapping[str, str], run_id: str, *, runner: str, count: int
) -> Neighbours:
    """Return the runs of one runner that were asked for nearest to one; archived ones are made readable here.

    A ref counts by the claim that it holds, not by its name: anybody may push any number of names around a run, to keep
    the runs beside it from being looked at.

    Args:
        archives: the archives of the bus.
        claims: reads claims.
        listed: tips that are listed, by run id.
        run_id: the run.
        runner: whose runs are looked for.
        count: how many to return at most.

    Raises:
        RemoteError: the remote did not answer.
    """
    archived, ids = _by_nearness(archives, listed, run_id)
    near: dict[str, str] = {}
    budget, looked = WorkBudget(_LOOK_CALLS), 0
    while looked < min(len(ids), _LOOKED_MAX_COUNT) and len(near) < count and budget.calls > 0:
        part = ids[looked : looked + _PART_COUNT]
        tips = claims.newest({run: listed[run] for run in part if run in listed}, budget)
        for run in part:
            tip = tips.get(run)
            if tip is not None and _counts(tip, runner):
                near[run] = tip.oid
            elif run in archived and _counts(archived[run].tip, runner):
                near[run] = archived[run].tip.oid
                archives.obtain(archived[run])
        looked += len(part)
    return Neighbours(dict(list(near.items())[:count]), looked, len(ids) - looked if len(near) < count else 0)


def _by_nearness(
    archives: Archives, listed: Mapping[str, str], run_id: str
) -> tuple[dict[str, ArchivedClaim], list[str]]:
    """Return the runs that are archived around one, and the ids of these and of what is listed, nearest first."""
    tips = archives.listed()
    mine = day_of(run_id)
    days = sorted({_day(tip) for tip in tips}, key=lambda day: abs(_ordinal(day) - _ordinal(mine)))
    read, unread = days[:_DAYS_READ], days[_DAYS_READ:]
    archived: dict[str, ArchivedClaim] = {}
    for day in read:
        archived |= archives.runs_of([tip for tip in tips if _day(tip) == day])
    # Between a day that was read and one that was not, nothing is known of what lies there.
    oldest, newest = max((d for d in unread if d < mine), default=""), min((d for d in unread if d > mine), default="~")
    ids = [run for run in {**listed, **archived} if oldest < day_of(run) < newest]
    return archived, sorted(ids, key=lambda run: abs(unix_ms(run) - unix_ms(run_id)))


def _counts(tip: ClaimTip, runner: str) -> bool:
    return tip.claim.runner == runner and not tip.signature.refused


def _day(tip: Tip) -> str:
    return tip.ref.rpartition("/")[2]


def _ordinal(day: str) -> int:
    return dt.date.fromisoformat(day).toordinal()
