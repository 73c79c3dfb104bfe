"""The protocol of the bus over any store of refs, for both sides: `RequesterBus` and `RunnerBus` of the interface.

Before the first write the bus record is read and compared with the pinned id; a listing that shows another record
later is refused. Knows nothing about git, policy or evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from bridge.bus.archive.days import Archives
from bridge.bus.archive.folding import ArchiveOrder, Folding
from bridge.bus.archive.keeping import keep, nearest
from bridge.bus.content import commits
from bridge.bus.content.checkout import CheckoutBounds, check_out
from bridge.bus.content.large_files import Handling
from bridge.bus.content.results import Results
from bridge.bus.identity.bus_record import BusIdentity, JudgeRoot
from bridge.bus.refs import names
from bridge.bus.refs.beacons import BeaconRefs
from bridge.bus.refs.claims import Claims
from bridge.bus.refs.collect import GRACE_S, delete, ended_runs
from bridge.bus.refs.history import StoreHistory
from bridge.bus.refs.logs import Logs
from bridge.bus.refs.repair import bad_refs
from bridge.bus.refs.repair import delete as delete_bad
from bridge.bus.refs.requests import Requests, base_name
from bridge.bus.refs.runs import Runs
from bridge.bus.refs.snapshots import build_snapshot, cancels_in
from bridge.bus.refs.windows import all_prefixes, cancel_prefixes, watched_prefixes, window_prefixes
from bridge.bus.store.gather import WorkBudget
from bridge.bus.store.interface import RefStore, RefUpdate
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.store.swap import swap
from bridge.bus.views import (
    ArchivedClaim,
    BadRef,
    ClaimTip,
    ClaimView,
    HeldClaim,
    ListingWindow,
    LogChunk,
    ReadRequests,
    ReceivedRequest,
    RequestRef,
    RunView,
    Snapshot,
    Submission,
    Tree,
)
from bridge.errors import BusError, FencedError, RunNotFoundError
from bridge.ids import unix_ms
from bridge.limits import BEACON_DEAD_S
from bridge.records import Beacon, BusRecord, Claim, Delivery, LogHead, Workload
from bridge.request import cancel_branch, run_id_of
from bridge.system.clock import Clock, rfc3339
from bridge.trust.judgement import TrustAnswer
from bridge.trust.seals import BusSeals, Refused, Seals


class RefBus:
    """A bus over a store.

    Args:
        store: the remote.
        clock: for commit times of what carries none, and for pacing.
        pacer: the push budget of this host.
        expect_id: the pinned bus id, or None for a first contact.
        prefix: where the runner's refs are, or None to find out.
        quarantine: the objects that are not read again; None remembers them in memory only.
    """

    def __init__(
        self,
        store: RefStore,
        *,
        clock: Clock,
        pacer: Pacer,
        expect_id: str | None = None,
        prefix: str | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._pacer = pacer
        self._quarantine = quarantine or Quarantine(None, clock)
        self._identity = BusIdentity(store, expect_id, prefix)
        self._requests = Requests(store, self._quarantine)
        self._runs = Runs(store, self._requests)
        self._results = Results(store)
        self._seals = BusSeals(self.identity)
        self._done: set[str] = set()
        self._lock = threading.RLock()

    @property
    def route(self) -> str:
        """Where this bus is, without user information."""
        return self._store.route

    @property
    def hosted(self) -> bool:
        """Whether pushes and listings are to be spared, see the interface."""
        return self._pacer.hosted

    @property
    def history(self) -> StoreHistory:
        """The commits and cancels that a decision about trust reads; see the interface."""
        return StoreHistory(self._store, self.identity(), self._quarantine)

    def identity(self) -> BusRecord:
        """Return the bus record; see the interface."""
        return self._identity.record()

    def snapshot(self, window: ListingWindow | None = None) -> Snapshot:
        """List the bus once, or what a window of it shows."""
        record = self.identity()
        listing = self._store.list(all_prefixes(record) if window is None else window_prefixes(record, window))
        self._identity.check_tips(
            listing.refs.get(names.bus_ref(record.prefix)), listing.refs.get(names.root_ref(record.prefix))
        )
        return build_snapshot(record, listing, self._claims, self._done)

    def mark(self) -> Hashable:
        """Return a value that differs once a request, claim or log has changed; see the interface."""
        return self._store.mark(watched_prefixes(self.identity()))

    def read_request(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes; see the interface."""
        try:
            return self._requests.read(ref)
        except FencedError:
            self._done.add(ref.oid)
            raise

    def read_requests(self, refs: Sequence[RequestRef], budget: WorkBudget) -> ReadRequests:
        """Return what is pushed at many branches, as far as the budget goes; see the interface."""
        found = self._requests.read_many(refs, budget)
        self._done |= found.done
        return found

    def read_claim(self, run_id: str, oid: str | None = None) -> ClaimView | None:
        """Return the claim chain of a run, or None when there is none."""
        return self._claims.read(run_id, oid)

    def archived(self) -> Iterator[ArchivedClaim]:
        """Yield the archived runs, newest first; see the interface."""
        return self._archives.newest()

    def neighbours(self, run_id: str, count: int) -> Mapping[str, str]:
        """Return the claims of the runs nearest to one in time, archived ones too; see the interface."""
        return nearest(self._archives, self.snapshot().claims, run_id, count)

    def newest_claims(self, tips: Mapping[str, str], budget: WorkBudget) -> Mapping[str, ClaimTip]:
        """Return the newest claims of runs without their chains, as far as the budget goes; see the interface."""
        return self._claims.newest(tips, budget)

    def bad_claim(self, oid: str) -> str | None:
        """Return why what was read at a claim ref is no claim, None where it is one or was not read."""
        return self._claims.bad(oid)

    def read_beacons(self) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip oid, beacon) of every runner; unreadable and refused ones are left out."""
        return self._beacons.read()

    def stop_when(self, asked: Callable[[], bool]) -> None:
        """Give calls up soon after the program is asked to end; see the interface."""
        self._store.stop_when(asked)

    def tend(self) -> None:
        """Pack and delete what this machine's copies have too much of; see the interface."""
        self._store.tend()

    def beside(self) -> RefBus:
        """Return this bus for work that goes on beside; see the interface."""
        record = self.identity()
        other = RefBus(
            self._store.beside(),
            clock=self._clock,
            pacer=self._pacer,
            expect_id=record.bus_id,
            prefix=record.prefix,
            quarantine=self._quarantine,
        )
        other.use_seals(self._seals.seals)
        other._identity, other._lock, other._beacons = self._identity, self._lock, self._beacons
        return other

    def cancelled(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these runs have a cancel branch."""
        record = self.identity()
        prefixes = [prefix for run_id in run_ids for prefix in cancel_prefixes(record, run_id)]
        listing = self._store.list(prefixes)
        return cancels_in(record, listing.refs) & frozenset(run_ids)

    def use_seals(self, seals: Seals) -> None:
        """Sign and verify with these keys; see the interface."""
        self._seals.seals = seals

    def use_root(self, judge: JudgeRoot) -> None:
        """Go by the root that this function accepts; see the interface."""
        self._identity.use_root(judge)

    @property
    def root_tip(self) -> str | None:
        """The tip of the root's ref when it was last listed, None where there is none."""
        return self._identity.root_tip

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The records that were read and refused; see the interface."""
        return self._seals.refused

    # Requester

    def submit(self, data: bytes, ref: str, workload: Workload | None, signature: bytes | None = None) -> Submission:
        """Push a request branch, created and never overwritten; see the interface."""
        record = self.identity()
        run_id = run_id_of(ref)
        if run_id is None or not names.accepts(record.request_branches, ref):
            raise BusError(
                f"{self.route} accepts requests on {', '.join(record.request_branches)}; got {ref}",
                remedy="set branch_template in kakeya.toml",
            )
        if workload is None and record.request_form == "workload":
            raise BusError(
                f"{self.route} is woken by the pushed tree and needs requests that carry a work tree",
                remedy="run it inside a clone of the repository",
            )
        submission = self._requests.submit(data, RequestRef(run_id, ref, ""), workload, signature)
        self._runs.remember(run_id, ref)
        return submission

    def ask_cancel(self, run_id: str, data: bytes, signature: bytes | None = None) -> None:
        """Push the cancel branch of a run; idempotent."""
        ref = self._runs.request_ref(self.identity(), run_id)
        if ref is None:
            raise RunNotFoundError(f"no request branch of run {run_id} on {self.route}", remedy="kakeya-mac ls")
        self._requests.cancel(run_id, ref, data, signature, int(self._clock.now().timestamp()))

    def probe(self, ref: str) -> str | None:
        """Push and delete the cancel branch of a request that was never sent; see the interface."""
        self.identity()
        return self._requests.probe(cancel_branch(ref), int(self._clock.now().timestamp()))

    def remember(self, run_id: str, ref: str) -> None:
        """Note the request branch of a run that was sent from here; see the interface."""
        self._runs.remember(run_id, ref)

    def view(self, run_id: str) -> RunView:
        """Return what is known of a run."""
        return self._runs.view(self.identity(), run_id, self.read_claim, self._read_archived)

    def read_log(self, run_id: str, after_seq: int = -1) -> tuple[LogChunk, ...]:
        """Return log chunks after a sequence number, in order, without gaps."""
        return self._logs.read(run_id, after_seq)

    def log_signature(self, run_id: str) -> TrustAnswer:
        """Return the state of the signature of the log last read."""
        return self._logs.signature(run_id)

    def read_result(self, oid: str) -> Tree:
        """Return the result tree of a result commit; see the interface."""
        return self._results.read(oid)

    # Runner

    def create(self, record: BusRecord) -> None:
        """Write the bus record on a remote that carries none."""
        self._identity.create(record)

    def update(self, record: BusRecord) -> None:
        """Replace the bus record by a newer one of the same bus; see the interface."""
        self._identity.update(record, rfc3339(self._clock.now()))

    def write_root(self, files: Mapping[str, bytes], over: str | None) -> bool:
        """Replace the root at exactly this tip; see the interface."""
        self._pacer.pushed()
        return self._identity.write_root(files, rfc3339(self._clock.now()), over)

    def push_wait_s(self) -> float:
        """Return the seconds after which a push that can wait should go; 0 means now."""
        return self._pacer.wait_s()

    def take_push_turn(self) -> bool:
        """Count the next push beforehand if it may go now; see the interface."""
        return self._pacer.take_turn()

    def claim(self, claim: Claim, over: str | None = None) -> HeldClaim:
        """Create the claim ref, one winner; see the interface."""
        self._pacer.pushed()
        return self._claims.create(claim, over)

    def take_over(self, seen: ClaimView, claim: Claim) -> HeldClaim:
        """Replace an expired claim at exactly the tip that was seen; see the interface."""
        self._pacer.pushed()
        return self._claims.take_over(seen, claim)

    def advance(
        self, held: HeldClaim, claim: Claim, *, log: LogChunk | None = None, beacon: Beacon | None = None
    ) -> HeldClaim:
        """Move the claim on, sending a log chunk and a beacon in the same push; see the interface."""
        self._pacer.pushed()
        if log is not None:
            self._logs.append(log, commits.unix_s(claim.time), claim.runner)
        along = self._logs.pending(claim.id)
        # Two runs of this runner would build two beacons on the same tip; a claim does not wait for a beacon's push.
        alone = beacon is not None and self._lock.acquire(blocking=False)
        try:
            sign = self._beacons.prepare(beacon) if beacon is not None and alone else None
            moved, others = self._claims.advance(held, claim, along if sign is None else [*along, sign])
            for update in along:
                self._logs.acknowledge(claim.id, others.get(update.ref))
            if sign is not None:
                self._beacons.acknowledge(sign, others.get(sign.ref))
        finally:
            if alone:
                self._lock.release()
        return moved

    def resume_log(self, run_id: str) -> LogHead | None:
        """Go on behind the log chunks that an earlier process of this runner sent; see the interface."""
        return self._logs.resume(run_id)

    def build_result(self, tree: Tree, run_id: str) -> str:
        """Store a result tree as a root commit, locally and durably, and return its oid."""
        return self._results.build(tree, run_id)

    def publish(self, held: HeldClaim, claim: Claim, *, log: LogChunk | None = None) -> HeldClaim:
        """End the run: one compare-and-swap to a terminal claim; see the interface."""
        if claim.state != "terminal":
            raise BusError(f"only a terminal claim ends a run; got {claim.state}")
        self._pacer.pushed()
        if log is not None:
            self._logs.append(log, commits.unix_s(claim.time), claim.runner)
        moved, _ = self._claims.advance(held, claim, self._logs.pending(claim.id), result_oid=claim.result_oid)
        self._logs.forget(claim.id)
        return moved

    def forget(self, run_id: str) -> None:
        """Let go of what is kept here of a run; see the interface."""
        self._store.drop(run_id)
        self._store.keep(run_id, None)
        self._logs.forget(run_id)

    def copy_result(self, ref: RequestRef, result_oid: str) -> Delivery:
        """Append the result on the request branch if it is still where it was."""
        self.identity()
        self._pacer.pushed()
        delivery = self._requests.copy_result(ref, result_oid)
        self.forget(ref.id)
        return delivery

    def claim_commits(self, chain: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
        """Return (raw commit object, claim JSON bytes) of each commit of a chain."""
        return self._claims.raw(chain)

    def beacon(self, beacon: Beacon) -> None:
        """Write this runner's beacon."""
        self._pacer.pushed()
        with self._lock:
            update = self._beacons.prepare(beacon)
            self._beacons.acknowledge(update, swap(self._store, [update], authority=update.ref)[update.ref])

    def fetch_workload(self, ref: RequestRef, tree: str, into: Path, *, large_files: Handling = "refuse") -> None:
        """Check a workload tree out into an empty directory; see the interface."""
        self._check_out(self._requests.workload(ref, tree), into, large_files)

    def fetch_pair(
        self, ref: RequestRef, tree: str, base: str, into: Path, *, large_files: Handling = "refuse"
    ) -> None:
        """Check a workload tree and a commit of its history out, as `head` and `base`; see the interface."""
        try:
            left: CheckoutBounds | None = None
            found = {"head": self._requests.workload(ref, tree), "base": self._requests.base(ref, base)}
            for name, one in found.items():
                (into / name).mkdir(mode=0o700)
                left = self._check_out(one, into / name, large_files, left)
        finally:
            self._store.drop(base_name(ref.id))

    def collect(self, *, older_than_s: float, dry_run: bool) -> Iterator[str]:
        """Delete refs of runs that ended long ago; yield each name."""
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

    def archive(
        self, runner: str, *, budget: WorkBudget, drop_after_s: float | None = None, dry_run: bool = False
    ) -> Iterator[str]:
        """Fold what a runner ended, and drop what may go; see the interface."""
        record, now = self.identity(), self._clock.now()
        dead = {ref for ref, _ in self._beacons.silent_for(BEACON_DEAD_S, now)}
        live = [one.runner for _, one in self.read_beacons() if names.beacon_ref(record.prefix, one.runner) not in dead]
        order = ArchiveOrder(runner, now, live, drop_after_s, dry_run)
        for ref in keep(self._store, record, self._folding, order, budget):
            self._pacer.pushed()
            yield ref

    def repair(self, *, dry_run: bool) -> Iterator[BadRef]:
        """Delete refs below the prefix that can never be read; see the interface."""
        prefix = self.identity().prefix
        for bad in bad_refs(self._store, prefix, self._quarantine):
            yield bad if dry_run else delete_bad(self._store, bad)

    # The refs that runners write: opened when the record was checked, which says where they are.

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self._store, self.identity(), self._seals, self._quarantine)

    @cached_property
    def _archives(self) -> Archives:
        return Archives(self._store, self.identity().prefix, self._claims, self._seals, self._quarantine)

    @cached_property
    def _folding(self) -> Folding:
        return Folding(self._store, self.identity().prefix, self._claims, self._archives, self._seals)

    def _read_archived(self, run_id: str, request: RequestRef | None) -> ClaimView | None:
        """Return the claim chain of a run that was archived; a request that may still run was not."""
        if request is not None and self._clock.now().timestamp() - unix_ms(run_id) / 1000 < GRACE_S:
            return None
        found = self._archives.find(run_id)
        if found is None:
            return None
        self._archives.obtain(found)
        view = self._claims.read(run_id, found.tip.oid)
        if view is None or not view.signature.revoked:
            return view
        at = self._archives.archived_by_others(view.claim, view.oid)
        return view if at is None else self._claims.archived(view, at)

    @cached_property
    def _logs(self) -> Logs:
        return Logs(self._store, self.identity().prefix, self._seals, self._quarantine)

    @cached_property
    def _beacons(self) -> BeaconRefs:
        return BeaconRefs(self._store, self.identity().prefix, self._seals, self._quarantine)

    def _check_out(
        self, found: tuple[RefStore, str], into: Path, large_files: Handling, left: CheckoutBounds | None = None
    ) -> CheckoutBounds:
        """Write a tree of a store into an empty folder; return what is left of the bounds."""
        store, tree = found
        with store.reader() as reader:
            return check_out(reader, tree, into, self._clock, left, large_files=large_files)
