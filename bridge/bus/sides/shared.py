"""What both sides of a bus call, over a store of refs.

Before the first write the bus record is read and compared with the pinned id; a listing that shows another record
later is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from bridge.bus.content.results import Results
from bridge.bus.identity.bus_record import BusIdentity, JudgeRoot
from bridge.bus.refs import names
from bridge.bus.refs.claims import Claims
from bridge.bus.refs.requests import Requests
from bridge.bus.refs.runs import Runs
from bridge.bus.refs.snapshots import build_snapshot
from bridge.bus.refs.windows import all_prefixes, sparse_heads, watched_prefixes, window_prefixes
from bridge.bus.store.interface import RefStore, RefUpdate
from bridge.bus.store.quarantine import Quarantine
from bridge.errors import FencedError
from bridge.ids import unix_ms
from bridge.limits import BEACON_DEAD_S, REQUEST_DEAD_S
from bridge.trust.seals import BusSeals, Refused, Seals

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.bus.archive.days import Archives
    from bridge.bus.refs.beacons import BeaconRefs
    from bridge.bus.refs.known_beacons import KnownBeacons
    from bridge.bus.refs.logs import Logs
    from bridge.bus.store.gather import WorkBudget
    from bridge.bus.store.push_budget import Pacer
    from bridge.bus.tree import Tree
    from bridge.bus.views import (
        ArchivedClaim,
        ClaimTip,
        ClaimView,
        ListingWindow,
        Neighbours,
        ReceivedRequest,
        RequestRef,
        Snapshot,
    )
    from bridge.records.bus import Beacon, BusRecord
    from bridge.system.clock import Clock


class SharedBus:
    """What requesters and runners both call: they read, check signatures, and delete the refs of old runs.

    Args:
        store: the remote.
        clock: for commit times of what carries none, and for pacing.
        pacer: the push budget of this host.
        expect_id: the pinned bus id, or None for a first contact.
        prefix: where the runner's refs are, or None to find out.
        quarantine: the objects that are not read again; None remembers them in memory only.
        beacons_file: of the beacons that are brought when the bus is opened; None for none.
    """

    GO_ON: ClassVar[str] = "{place}"
    """What this side does where the owner moved the bus."""

    def __init__(
        self,
        store: RefStore,
        *,
        clock: Clock,
        pacer: Pacer,
        expect_id: str | None = None,
        prefix: str | None = None,
        quarantine: Quarantine | None = None,
        beacons_file: Path | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._pacer = pacer
        self._known_file = beacons_file
        self._quarantine = quarantine or Quarantine(None, clock)
        self._identity = BusIdentity(store, expect_id, prefix, self.GO_ON)
        self._requests = Requests(store, self._quarantine)
        self._runs = Runs(
            store, self._requests, self._quarantine, self._identity.listed_beside, self._identity.check_tips
        )
        self._results = Results(store)
        self._seals = BusSeals(self.identity)
        self._done: set[str] = set()
        self._sparse: frozenset[str] = frozenset()
        self._lock = threading.RLock()

    @property
    def route(self) -> str:
        """Where this bus is, with no secret of its URL."""
        return self._store.route

    @property
    def hosted(self) -> bool:
        """Whether the remote is another's machine by its name, where pushes and listings are to be spared."""
        return self._pacer.hosted

    def identity(self) -> BusRecord:
        """Return the bus record.

        Raises:
            BusMissingError: the remote carries none.
            BusMovedError: the owner moved the bus to another one.
        """
        return self._identity.record()

    def read_moved(self) -> None:
        """Take the record of a bus that its owner moved as any other: for who moves it."""
        self._identity.reads_moved = True

    def snapshot(self, window: ListingWindow | None = None) -> Snapshot:
        """List the bus once: all of it, or what a window shows, which costs the same however full the bus is."""
        record = self.identity()
        prefixes = all_prefixes(record) if window is None else window_prefixes(record, window, self._sparse)
        listing = self._store.list(prefixes)
        self._sparse = sparse_heads(record, listing.refs, None if window is None else self._sparse)
        self._identity.check_tips(
            listing.refs.get(names.bus_ref(record.prefix)), listing.refs.get(names.root_ref(record.prefix))
        )
        return build_snapshot(record, listing, self._claims, self._done)

    def mark(self) -> Hashable:
        """Return a value that differs once a request, claim or log has changed; None where only a listing tells.

        Costs next to nothing. One that did not differ proves nothing.
        """
        return self._store.mark(watched_prefixes(self.identity()))

    def read_request(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes; bounded before they are fetched.

        Raises:
            RequestRejectedError: no request, or too large, at this commit.
        """
        try:
            return self._requests.read(ref)
        except FencedError:
            self._done.add(ref.oid)
            raise

    def read_claim(self, run_id: str, oid: str | None = None) -> ClaimView | None:
        """Return the claim chain of a run, or None when there is none at its ref.

        Raises:
            ObjectError: what is there is no claim chain of this run.
        """
        return self._claims.read(run_id, oid)

    def archived(self) -> Iterator[ArchivedClaim]:
        """Yield the runs in the archives, newest first; a day is fetched when its first run is asked for.

        Raises:
            RemoteError: the remote did not answer.
        """
        return self._archives.newest()

    def neighbours(self, run_id: str, runner: str, count: int) -> Neighbours:
        """Return the runs of a runner that were asked for nearest to one, archived ones included.

        What is no claim of this runner, or refused, is passed over, up to a bound.

        Raises:
            RemoteError: the remote did not answer.
        """
        from bridge.bus.archive.keeping import nearest

        return nearest(self._archives, self._claims, self.snapshot().claims, run_id, runner=runner, count=count)

    def newest_claims(self, tips: Mapping[str, str], budget: WorkBudget) -> Mapping[str, ClaimTip]:
        """Return the newest claims, by run id, of {run id: tip}, without their chains.

        Read in few fetches and each once; what is no claim is left out, and so is what the budget does not reach.

        Raises:
            RemoteError: the remote did not answer.
        """
        return self._claims.newest(tips, budget)

    def read_result(self, oid: str) -> Tree:
        """Return the result tree of a result commit (terminal claims name it); bounded.

        Raises:
            IntegrityError: the tree breaks its bounds or is not a result tree.
        """
        return self._results.read(oid)

    def read_beacons(
        self, *, as_opened: bool = False, listed: Mapping[str, str] | None = None
    ) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip oid, beacon) of every runner; unreadable ones and those whose signature is refused are left out.

        Of `refused`, what concerns beacons is as of the last call.

        Args:
            as_opened: whether to go by the listing that found the bus record, for a caller to whom that is new enough.
            listed: the tips, by runner name, of a listing that was just made; None lists them.
        """
        if listed is None:
            return self._beacons.read(self._identity.beacons if as_opened else None)
        prefix = self.identity().prefix
        return self._beacons.read({names.beacon_ref(prefix, runner): oid for runner, oid in listed.items()})

    def use_seals(self, seals: Seals) -> None:
        """Sign claims, beacons and log heads with these keys, and verify with them what others signed."""
        self._seals.seals = seals

    def use_root(self, judge: JudgeRoot) -> None:
        """Go by the bus record of the root that a function accepts, whenever record or root move.

        Args:
            judge: takes the untrusted files at the root's ref, None where there is none, and the id of the bus;
                returns the record in the root that counts for this side, None where none does.
        """
        self._identity.use_root(judge)

    @property
    def root_tip(self) -> str | None:
        """The tip of the root's ref when it was last listed, None where there is none."""
        return self._identity.root_tip

    @property
    def is_root_withheld(self) -> bool:
        """Whether the remote lists a root and does not give it now: what it holds may be newer than what is known."""
        return self._identity.is_root_withheld

    @property
    def has_record(self) -> bool:
        """Whether the last listing showed a bus record; where not, the one that was read before still stands."""
        return self._identity.has_record

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The claims, beacons and logs that were read and not accepted because of their signatures, oldest first."""
        return self._seals.refused

    def try_requests(self, template: str) -> str | None:
        """Push to a branch in a request namespace that no runner acts on, delete it; return its name if it stayed.

        Args:
            template: of request branches, with ``{preset}`` and ``{id}``.

        Raises:
            RemoteError: the remote refuses the push.
        """
        from bridge.bus.probe import try_requests

        return try_requests(self._store, template, int(self._clock.now().timestamp()))

    def tend(self) -> None:
        """Pack and delete what this machine's copies have too much of; slow at times, so when nothing waits for it."""
        self._store.tend()

    def tend_apart(self) -> None:
        """Have a process of its own do what `tend` does, if there is something to do, and do not wait for it."""
        self._store.tend_apart()

    def collect(self, *, older_than_s: float, dry_run: bool) -> Iterator[str]:
        """Delete branches and logs of runs that ended long ago, and dead beacons; yield each name.

        A claim keeps its result reachable and stays until its runner has archived it.
        """
        from bridge.bus.refs.collect import delete, ended_runs

        record = self.identity()
        refs = self._store.list([record.prefix, *names.listing_prefixes(record.request_branches)]).refs
        runs = list(ended_runs(self._claims, record.prefix, refs, self._clock.now(), older_than_s))
        dead = self._beacons.silent_for(max(older_than_s, BEACON_DEAD_S), self._clock.now())
        if dry_run:
            yield from (*(ref for ref, _ in dead), *(ref for run in runs for ref in run.refs))
            return
        yield from delete(self._store, runs)
        for ref, oid in dead:
            if self._store.push([RefUpdate(ref, None, oid)]).get(ref):
                yield ref

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self._store, self.identity(), self._seals, self._quarantine)

    @cached_property
    def _archives(self) -> Archives:
        from bridge.bus.archive.days import Archives

        return Archives(self._store, self.identity().prefix, self._claims, self._seals, self._quarantine)

    def _may_be_archived(self, run_id: str) -> bool:
        """Return whether a run is so old that nothing of it can be asked for again."""
        return self._clock.now().timestamp() - unix_ms(run_id) / 1000 >= REQUEST_DEAD_S

    def _read_archived(self, run_id: str, request: RequestRef | None) -> ClaimView | None:
        """Return the claim chain of a run that was archived; a request that may still run was not."""
        if request is not None and not self._may_be_archived(run_id):
            return None
        archived = self._archives.find(run_id)
        if archived is None:
            return None
        self._archives.obtain(archived)
        view = self._claims.read(run_id, archived.tip.oid)
        if view is None or not view.signature.revoked:
            return view
        at = self._archives.archived_by_others(view.claim, view.oid)
        return view if at is None else self._claims.archived(view, at)

    @cached_property
    def _logs(self) -> Logs:
        from bridge.bus.refs.logs import Logs

        return Logs(self._store, self.identity().prefix, self._seals, self._quarantine)

    @cached_property
    def _beacons(self) -> BeaconRefs:
        from bridge.bus.refs.beacons import BeaconRefs

        return BeaconRefs(self._store, self.identity().prefix, self._seals, self._quarantine, self._known)

    @cached_property
    def _known(self) -> KnownBeacons:
        from bridge.bus.refs.known_beacons import KnownBeacons

        return KnownBeacons(self._store, self._known_file)
