"""Keep the archives of a bus: fold the days that are due, drop what became needless, and read across both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final

from bridge.bus.archive.days import Archives, day_of
from bridge.bus.archive.folding import ArchiveOrder, Folding, days_in, needless
from bridge.bus.refs import names
from bridge.bus.refs.collect import delete
from bridge.bus.store.gather import Tip, WorkBudget
from bridge.bus.store.interface import RefStore
from bridge.bus.views import ArchivedClaim
from bridge.ids import unix_ms
from bridge.records import BusRecord

_DAYS_READ: Final = 16  # days of archives that are read for the neighbours of one run


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
    prefixes = [names.claim_ref(record.prefix, ""), names.log_ref(record.prefix, "")]
    refs = store.list([*prefixes, *names.listing_prefixes(record.request_branches)]).refs
    for day in folding.due(days_in(record.prefix, refs), order):
        if budget.calls <= 0 or budget.stopping():
            return
        written, held = folding.fold(day, order, budget)
        yield from written
        gone = list(needless(held, order))
        yield from (ref for run in gone for ref in run.refs) if order.dry_run else delete(store, gone)


def nearest(archives: Archives, claims: Mapping[str, str], run_id: str, count: int) -> dict[str, str]:
    """Return claim commits, by run id, of the runs that were asked for nearest to one; archived ones are read here.

    Args:
        archives: the archives of the bus.
        claims: tips that are listed.
        run_id: the run.
        count: how many to return at most.

    Raises:
        RemoteError: the remote did not answer.
    """
    tips = archives.listed()
    mine = day_of(run_id)
    days = sorted({_day(tip) for tip in tips}, key=lambda day: abs(_ordinal(day) - _ordinal(mine)))
    read, unread = days[:_DAYS_READ], days[_DAYS_READ:]
    found = dict(claims)
    archived: dict[str, ArchivedClaim] = {}
    for day in read:
        archived |= archives.runs_of([tip for tip in tips if _day(tip) == day])
    found |= {one: archived[one].tip.oid for one in archived if one not in claims}
    # Between a day that was read and one that was not, nothing is known of what lies there.
    oldest, newest = max((d for d in unread if d < mine), default=""), min((d for d in unread if d > mine), default="~")
    ids = [one for one in found if oldest < day_of(one) < newest]
    chosen = sorted(ids, key=lambda one: abs(unix_ms(one) - unix_ms(run_id)))[:count]
    for one in chosen:
        if one in archived:
            archives.obtain(archived[one])
    return {one: found[one] for one in chosen}


def _day(tip: Tip) -> str:
    return tip.ref.rpartition("/")[2]


def _ordinal(day: str) -> int:
    return dt.date.fromisoformat(day).toordinal()
