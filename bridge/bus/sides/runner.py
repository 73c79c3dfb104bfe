"""What a runner calls, over a store of refs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.bus.archive.folding import ArchiveOrder, Folding
from bridge.bus.archive.keeping import keep
from bridge.bus.content import commits
from bridge.bus.content.checkout import CheckoutBounds, check_out
from bridge.bus.content.large_files import Handling
from bridge.bus.refs import names
from bridge.bus.refs.damage import damaged_refs, look_again
from bridge.bus.refs.damage import delete as delete_damaged
from bridge.bus.refs.damage import restore as restore_damaged
from bridge.bus.refs.history import History
from bridge.bus.refs.repair import bad_refs, branches_in_the_way
from bridge.bus.refs.repair import delete as delete_bad
from bridge.bus.refs.requests import base_name
from bridge.bus.refs.snapshots import cancels_in, requests_in
from bridge.bus.refs.windows import cancel_prefixes
from bridge.bus.sides.shared import SharedBus
from bridge.bus.store.gather import WorkBudget
from bridge.bus.store.interface import RefStore
from bridge.bus.store.swap import swap, tips_of
from bridge.bus.tree import Tree
from bridge.bus.views import (
    BadRef,
    ClaimView,
    DamagedRef,
    HeldClaim,
    LogChunk,
    Placement,
    PrefixTrial,
    ReadRequests,
    RequestRef,
)
from bridge.errors import BegunError, BusError, FencedError, IntegrityError, RemoteError, RequestRejectedError
from bridge.limits import BEACON_DEAD_S
from bridge.records.bus import Beacon, BusRecord
from bridge.records.claim import Claim, Delivery
from bridge.records.logs import LogHead
from bridge.request.branches import HEADS, run_id_of
from bridge.system.clock import rfc3339

if TYPE_CHECKING:
    from bridge.bus.moving import Place

BUS_SETTING: Final = 'bus = "{place}" in policy.toml, and behind --bus in a service that names one'
"""Where a host says which bus it serves; what a service's command line names goes before its policy."""
_BEACON_TRIES: Final = 2  # another writer was there first: over what it wrote


class RunnerBus(SharedBus):
    """What a runner calls: it writes the bus record, claims, logs, beacons and results.

    It keeps this order for a run: claim -> advance(started) -> (log, renew)* -> publish -> copy. Each of claim, advance
    and publish is one compare-and-swap on the run's claim ref; `FencedError` means that another writer moved the ref
    and that nothing was written. A start is one more, on a ref that nobody moves.
    """

    GO_ON = f"on this host: {BUS_SETTING}, then kakeya-runner serve; what it began goes on there"

    @property
    def history(self) -> History:
        """The commits and cancel branches that a decision about trust reads."""
        return History(self._store, self.identity(), self._quarantine)

    def read_requests(self, refs: Sequence[RequestRef], budget: WorkBudget) -> ReadRequests:
        """Return what is pushed at many branches, in few fetches; a bad one costs only itself.

        Raises:
            RemoteError: the remote did not answer.
        """
        requests = self._requests.read_many(refs, budget)
        self._done |= requests.done
        return requests

    def requests_of(self, run_ids: Collection[str]) -> tuple[RequestRef, ...]:
        """Return all request branches of some runs, also those that no window shows; costs a listing of all requests.

        Raises:
            RemoteError: the remote did not answer.
        """
        return tuple(request for request in self._branches() if request.id in run_ids and request.oid not in self._done)

    def _branches(self) -> Sequence[RequestRef]:
        record = self.identity()
        return requests_in(record, self._store.list(names.listing_prefixes(record.request_branches)).refs)

    def beside(self) -> RunnerBus:
        """Return the same bus for work that goes on beside: its calls wait for no others; `stop_when` is its own."""
        record = self.identity()
        other = RunnerBus(
            self._store.beside(),
            clock=self._clock,
            pacer=self._pacer,
            expect_id=record.bus_id,
            prefix=record.prefix,
            quarantine=self._quarantine,
        )
        other.use_seals(self._seals.seals)
        other._identity, other._lock = self._identity, self._lock
        # Over its own store: a sign of life that goes along with a run's claim is not given up before the claim is.
        other._beacons = self._beacons.over(other._store)
        return other

    def bad_claim(self, oid: str) -> str | None:
        """Return why what was read at a claim ref is no claim, None where it is one or was not read."""
        return self._claims.bad(oid)

    def begun(self) -> frozenset[str]:
        """Return the runs whose start or log is on the bus, listing no more than that.

        Raises:
            RemoteError: the remote did not answer.
        """
        prefix = self.identity().prefix
        refs = self._store.list([names.start_ref(prefix, ""), names.log_ref(prefix, "")]).refs
        run_ids = (names.runner_id_of(prefix, kind, ref) for ref in refs for kind in ("start", "log"))
        return frozenset(run_id for run_id in run_ids if run_id is not None)

    def begun_by(self, run_id: str) -> ClaimView | None:
        """Return the chain of the claim that began a run, None where none is known that counts.

        Raises:
            InfrastructureError: it cannot be read now.
        """
        self.identity()
        return self._claims.begun(run_id)

    def begin_again(self, held_claim: HeldClaim) -> None:
        """Make sure that a started claim is the one that began its run, before it is begun after a crash.

        Raises:
            BegunError: another claim began it.
            RemoteError: it cannot be told.
        """
        self._pacer.pushed()
        self._claims.begin_again(held_claim)

    def is_archived(self, run_id: str) -> bool:
        """Return whether an archive holds a run; its id is not claimed again, whoever pushes a branch with it.

        A run that can still be asked for is in none, which costs no call.

        Raises:
            RemoteError: the remote did not answer.
        """
        archived = self._archives.find(run_id) if self._may_be_archived(run_id) else None
        return archived is not None and (archived.tip.signature.revoked or not archived.tip.signature.refused)

    def stop_when(self, should_stop: Callable[[], bool]) -> None:
        """Give up calls of this object after `should_stop` returns True: they raise `bridge.errors.GivenUpError`."""
        self._store.stop_when(should_stop)

    def cancelled(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these runs have a cancel branch, listing no more than that."""
        record = self.identity()
        prefixes = [prefix for run_id in run_ids for prefix in cancel_prefixes(record, run_id)]
        listing = self._store.list(prefixes)
        return cancels_in(record, listing.refs) & frozenset(run_ids)

    def create(self, record: BusRecord) -> Placement:
        """Write the bus record on a remote that carries none, at the prefix that it lets a bus have.

        Raises:
            BusError: it carries one already, or hides what it takes.
            RemoteError: it takes no refs of a bus at any prefix.
        """
        from bridge.bus.probe import place_refs

        placement = place_refs(self._store, record.prefix, commits.unix_s(record.created))
        self._identity.create(record, placement)
        return placement

    def try_refs(self) -> PrefixTrial:
        """Create, move and delete a ref at this bus's prefix.

        Raises:
            RemoteError: the remote refuses to create it.
        """
        from bridge.bus.probe import try_prefix

        return try_prefix(self._store, self.identity().prefix, int(self._clock.now().timestamp()))

    def place(self, prefix: str) -> Place:
        """Return this remote as one that a bus with this prefix moves from or to; no record is asked for."""
        from bridge.bus.moving import Place

        return Place(self._store, prefix, self._clock)

    def has_branch(self, name: str) -> bool:
        """Return whether the remote has a branch of exactly this name."""
        return bool(tips_of(self._store, [f"{HEADS}{name}"]))

    def update(self, record: BusRecord) -> None:
        """Replace the bus record by a newer one of the same bus, by compare-and-swap; BusError when it moved."""
        self._identity.update(record, rfc3339(self._clock.now()))

    def write_root(self, files: Mapping[str, bytes], over: str | None) -> bool:
        """Replace the root's files; return whether that landed.

        Args:
            files: the whole root.
            over: the tip that is replaced, None where there is none; at another tip nothing is written.
        """
        self._pacer.pushed()
        return self._identity.write_root(files, rfc3339(self._clock.now()), over)

    def put_record_back(self) -> bool:
        """Write the bus record anew where the last listing showed none; return whether that landed.

        Raises:
            RemoteError: the outcome is not known.
        """
        self._pacer.pushed()
        return self._identity.put_back()

    def push_wait_s(self) -> float:
        """Return the seconds after which a push that can wait should go; 0 means now. Shared by a host's runners."""
        return self._pacer.wait_s()

    def take_push_turn(self) -> bool:
        """Count the next push beforehand if it may go now, so that no other runner of the host takes the same turn."""
        return self._pacer.take_turn()

    def claim(self, claim: Claim, over: str | None = None) -> HeldClaim:
        """Create the claim ref, one winner.

        Args:
            claim: the first of its chain.
            over: the tip of a claim that was not accepted, replaced at exactly this commit.

        Raises:
            BegunError: another claim began the run, or its log shows that somebody did; ours is gone again.
            FencedError: it exists already.
        """
        self._pacer.pushed()
        created, log = self._claims.create(claim, over)
        if log is not None and over is None and self._logs.newest(claim.id, log) is not None:
            self._claims.withdraw(created)
            raise BegunError("its log is there: somebody began it, although no claim is there")
        return created

    def take_over(self, view: ClaimView, claim: Claim) -> HeldClaim:
        """Replace an expired claim at exactly the tip that was seen.

        Raises:
            FencedError: the tip moved.
        """
        self._pacer.pushed()
        return self._claims.take_over(view, claim)

    def put_back(self, held_claim: HeldClaim) -> None:
        """Create the claim ref anew, at a held claim whose ref was deleted.

        What others claimed and did not begin gives way to the claim that began the run.

        Raises:
            FencedError: a claim is there that does not, or the run is archived.
        """
        if self.is_archived(held_claim.claim.id):
            raise FencedError(f"run {held_claim.claim.id} ended and was archived")
        self._pacer.pushed()
        self._claims.put_back(held_claim)

    def advance(
        self, held_claim: HeldClaim, claim: Claim, *, log: LogChunk | None = None, beacon: Beacon | None = None
    ) -> HeldClaim:
        """Move the claim on (also to renew its lease), sending a log chunk and a beacon in the same push.

        Only the claim's own acknowledgement counts: a lost log chunk is sent again by the next call. One that begins
        the run creates the ref of its start in the same push, and that one's counts: there is one start of a run.

        Raises:
            BegunError: another claim began the run.
            FencedError: the tip moved.
        """
        self._pacer.pushed()
        if log is not None:
            self._logs.append(log, commits.unix_s(claim.time), claim.runner)
        along = self._logs.pending(claim.id)
        # Two runs of this runner would build two beacons on the same tip; a claim does not wait for a beacon's push.
        alone = beacon is not None and self._lock.acquire(blocking=False)
        try:
            sign = self._beacons.prepare(beacon) if beacon is not None and alone else None
            moved, others = self._claims.advance(held_claim, claim, along if sign is None else [*along, sign])
            for update in along:
                self._logs.acknowledge(claim.id, others.get(update.ref))
            if sign is not None:
                self._beacons.acknowledge(sign, others.get(sign.ref))
        finally:
            if alone:
                self._lock.release()
        return moved

    def resume_log(self, run_id: str) -> LogHead | None:
        """Go on behind the log chunks that an earlier process of this runner sent; return the head of the last.

        None where there are none, or none of ours: the log begins anew.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        return self._logs.resume(run_id)

    def build_result(self, tree: Tree, run_id: str) -> str:
        """Store a result tree as a root commit, locally, and return its oid; the same input gives the same oid."""
        return self._results.build(tree, run_id)

    def publish(self, held_claim: HeldClaim, claim: Claim, *, log: LogChunk | None = None) -> HeldClaim:
        """End the run: one compare-and-swap to a terminal claim whose parents are the last claim and the result.

        The end of the log goes along in the same push; only the claim's own acknowledgement counts.

        Raises:
            FencedError: the tip moved.
        """
        if claim.state != "terminal":
            raise BusError(f"only a terminal claim ends a run; got {claim.state}")
        self._pacer.pushed()
        if log is not None:
            self._logs.append(log, commits.unix_s(claim.time), claim.runner)
        moved, _ = self._claims.advance(held_claim, claim, self._logs.pending(claim.id), result_oid=claim.result_oid)
        self._logs.forget(claim.id)
        return moved

    def forget(self, run_id: str) -> None:
        """Let go of what is kept here of a run that is not this runner's any more: its result, its unsent log."""
        self._store.drop(run_id)
        self._store.keep(run_id, None)
        self._logs.forget(run_id)

    def copy_result(self, ref: RequestRef, result_oid: str) -> Delivery:
        """Append the result below `.mac-bridge/result/` on the request branch if it is still where it was."""
        self.identity()
        self._pacer.pushed()
        delivery = self._requests.copy_result(ref, result_oid)
        self.forget(ref.id)
        return delivery

    def claim_commits(self, chain: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
        r"""Return (raw commit object, claim JSON bytes) of each commit of a chain, for the result tree.

        The raw object is what git hashes: sha1 of ``commit <length>\0`` and these bytes is the commit's id.
        """
        return self._claims.raw(chain)

    def beacon(self, beacon: Beacon) -> None:
        """Write this runner's beacon."""
        self._pacer.pushed()
        with self._lock:
            for _ in range(_BEACON_TRIES):
                update = self._beacons.prepare(beacon)
                outcome = swap(self._store, [update], authority=update.ref)[update.ref]
                self._beacons.acknowledge(update, outcome)
                if outcome.landed:
                    return

    def withdraw_beacon(self, runner: str) -> bool:
        """Delete this runner's beacon, if nobody wrote another over it; return whether none is left.

        Raises:
            RemoteError: the bus did not answer.
        """
        self._pacer.pushed()
        with self._lock:
            return self._beacons.withdraw(runner)

    def fetch_workload(self, ref: RequestRef, tree: str, into: Path, *, large_files: Handling = "refuse") -> None:
        """Check a workload tree out into an empty directory, bounded before and while it happens.

        Raises:
            RequestRejectedError: the tree breaks a bound or holds what a checkout must not hold.
            PolicyRefusedError: it holds git-lfs pointers and `large_files` is ``refuse``.
            InfrastructureError: a large file could not be fetched.
        """
        self._check_out(self._requests.workload(ref, tree), into, large_files)

    def fetch_pair(
        self, ref: RequestRef, tree: str, base: str, into: Path, *, large_files: Handling = "refuse"
    ) -> None:
        """Check two trees out into an empty directory, as `head` and `base`, within the bounds of one.

        Args:
            ref: the request.
            tree: its workload tree.
            base: a commit of the history that was pushed with it.
            into: the directory.
            large_files: as for `fetch_workload`.

        Raises:
            RequestRejectedError: as for `fetch_workload`, or the commit is not in that history.
        """
        try:
            left: CheckoutBounds | None = None
            trees = {"head": self._requests.workload(ref, tree), "base": self._requests.base(ref, base)}
            for name, source in trees.items():
                (into / name).mkdir(mode=0o700)
                left = self._check_out(source, into / name, large_files, left)
        finally:
            self._store.drop(base_name(ref.id))

    def archive(
        self,
        runner: str,
        *,
        budget: WorkBudget,
        drop_after_s: float | None = None,
        dry_run: bool = False,
        ahead_s: float = 0.0,
    ) -> Iterator[str]:
        """Fold runs that ended into archives, by runner and day, and drop what that makes needless; yield each ref.

        Only days that are over are folded. Logs of archived runs go, and claims whose request branch is gone.

        Args:
            runner: who archives: what it ended, and what runners ended that have been silent for long.
            budget: what may be spent on reading.
            drop_after_s: the age from which request branches and claims of archived runs go as well; None: never.
            dry_run: only yield what would be written and deleted.
            ahead_s: by how many seconds this machine's clock may be ahead, as others contradict it.

        Raises:
            FencedError: another process archives in this runner's name.
            RemoteError: the bus did not answer.
        """
        record = self.identity()
        order = ArchiveOrder(runner, self._clock.now(), (), drop_after_s, dry_run, ahead_s)
        dead = {ref for ref, _ in self._beacons.silent_for(BEACON_DEAD_S, order.earliest)}
        live = [
            beacon.runner
            for _, beacon in self.read_beacons()
            if names.beacon_ref(record.prefix, beacon.runner) not in dead
        ]
        for ref in keep(self._store, record, self._folding, replace(order, live=live), budget):
            self._pacer.pushed()
            yield ref

    def repair(self, *, dry_run: bool) -> Iterator[BadRef]:
        """Delete refs of ours that can never be read or are in the way of others, each where it was seen; yield each.

        A branch beside which git makes no request branch is only named: it is a person's.

        Raises:
            RemoteError: the bus did not answer.
        """
        record = self.identity()
        for bad in bad_refs(self._store, record.prefix, self._quarantine):
            yield bad if dry_run else delete_bad(self._store, bad)
        yield from branches_in_the_way(self._store, record.request_branches)

    def damaged(self) -> Iterator[DamagedRef]:
        """Yield the refs of the bus whose objects the remote has lost or holds damaged; it is asked for all of them.

        One of them keeps the remote from taking any push, whoever pushes what.

        Raises:
            RemoteError: the bus did not answer.
        """
        record = self.identity()
        prefixes = [record.prefix, *names.listing_prefixes(record.request_branches)]
        return damaged_refs(self._store, self._store.list(prefixes).refs)

    def delete_damaged(self, damaged: DamagedRef) -> DamagedRef:
        """Delete a damaged ref where it still points there; return the outcome."""
        self._pacer.pushed()
        return delete_damaged(self._store, damaged)

    def restore_damaged(self, damaged: DamagedRef) -> DamagedRef:
        """Push a damaged ref that was deleted again where this machine has it whole; return the outcome."""
        self._pacer.pushed()
        return restore_damaged(self._store, damaged)

    def restore_copy(self, damaged: DamagedRef, request_oid: str, result_oid: str) -> DamagedRef:
        """Create a request branch that was deleted as it was delivered: a published result on the claimed request.

        Args:
            damaged: the branch; it stays gone where the remote has lost the request, or somebody made another.
            request_oid: the commit that was claimed.
            result_oid: the result.

        Raises:
            RemoteError: the remote is away.
        """
        self._pacer.pushed()
        oid = None
        with suppress(BusError, IntegrityError, RemoteError):
            self._results.read(result_oid)
            ref = RequestRef(run_id_of(damaged.ref) or "", damaged.ref, request_oid)
            oid = self._requests.restore_copy(ref, result_oid)
        return damaged if oid is None else look_again(self._store, replace(damaged, oid=oid))

    def branch_with_result(self, run_id: str) -> str | None:
        """Return the full name of a request branch of a run that carries a result, None where none does.

        Raises:
            RemoteError: the bus did not answer.
        """
        for ref in self._branches():
            if ref.id == run_id:
                with suppress(FencedError, RequestRejectedError):  # the first: it carries a result
                    self.read_request(ref)
                if ref.oid in self._done:
                    return ref.ref
        return None

    @cached_property
    def _folding(self) -> Folding:
        return Folding(self._store, self.identity().prefix, self._claims, self._archives, self._seals)

    def _check_out(
        self, source: tuple[RefStore, str], into: Path, large_files: Handling, left: CheckoutBounds | None = None
    ) -> CheckoutBounds:
        """Write a tree of a store into an empty folder; return what is left of the bounds."""
        store, tree = source
        with store.reader() as reader:
            return check_out(reader, tree, into, self._clock, left, large_files=large_files)
