"""What a runner calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bridge.bus.interface.history import History
from bridge.bus.interface.shared import SharedBus
from bridge.bus.store.gather import WorkBudget
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
from bridge.records.bus import Beacon, BusRecord
from bridge.records.claim import Claim, Delivery
from bridge.records.logs import LogHead

if TYPE_CHECKING:
    from bridge.bus.content.large_files import Handling


class RunnerBus(SharedBus, Protocol):
    """What a runner calls: it writes the bus record, claims, logs, beacons and results.

    It keeps this order for a run: claim -> advance(started) -> (log, renew)* -> publish -> copy. Each of claim, advance
    and publish is one compare-and-swap on the run's claim ref; `FencedError` means that another writer moved the ref
    and that nothing was written.
    """

    @property
    def history(self) -> History:
        """The commits and cancel branches that a decision about trust reads."""
        ...

    def read_requests(self, refs: Sequence[RequestRef], budget: WorkBudget) -> ReadRequests:
        """Return what is pushed at many branches, in few fetches; a bad one costs only itself.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def requests_of(self, run_ids: Collection[str]) -> tuple[RequestRef, ...]:
        """Return all request branches of some runs, also those that no window shows; costs a listing of all requests.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def cancelled(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these runs have a cancel branch, listing no more than that."""
        ...

    def begun(self, run_id: str = "") -> frozenset[str]:
        """Return the runs whose log is on the bus, listing no more than that.

        Args:
            run_id: the one run that is asked for; empty: all of them.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def is_archived(self, run_id: str) -> bool:
        """Return whether an archive holds a run; its id is not claimed again, whoever pushes a branch with it.

        A run that can still be asked for is in none, which costs no call.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def stop_when(self, should_stop: Callable[[], bool]) -> None:
        """Give calls of this object up soon after `asked` returns True: they raise `bridge.errors.GivenUpError`."""
        ...

    def beside(self) -> RunnerBus:
        """Return the same bus for work that goes on beside: its calls wait for no others; `stop_when` is its own."""
        ...

    def bad_claim(self, oid: str) -> str | None:
        """Return why what was read at a claim ref is no claim, None where it is one or was not read."""
        ...

    def create(self, record: BusRecord) -> Placement:
        """Write the bus record on a remote that carries none, at the prefix that it lets a bus have.

        Raises:
            BusError: it carries one already, or hides what it takes.
            RemoteError: it takes no refs of a bus at any prefix.
        """
        ...

    def try_refs(self) -> PrefixTrial:
        """Create, move and delete a ref at this bus's prefix.

        Raises:
            RemoteError: the remote refuses to create it.
        """
        ...

    def has_branch(self, name: str) -> bool:
        """Return whether the remote has a branch of exactly this name."""
        ...

    def update(self, record: BusRecord) -> None:
        """Replace the bus record by a newer one of the same bus, by compare-and-swap; BusError when it moved."""
        ...

    def repair(self, *, dry_run: bool) -> Iterator[BadRef]:
        """Delete refs of ours that can never be read or are in the way of others, each where it was seen; yield each.

        A branch beside which git makes no request branch is only named: it is a person's.

        Raises:
            RemoteError: the bus did not answer.
        """
        ...

    def damaged(self) -> Iterator[DamagedRef]:
        """Yield the refs of the bus whose objects the remote has lost or holds damaged; it is asked for all of them.

        One of them keeps the remote from taking any push, whoever pushes what.

        Raises:
            RemoteError: the bus did not answer.
        """
        ...

    def mend(self, damaged: DamagedRef, *, restore: bool = True) -> DamagedRef:
        """Delete a damaged ref where it still points there, and push again what is whole here; return the outcome.

        Args:
            damaged: as it was found.
            restore: whether to push it again.
        """
        ...

    def archive(
        self, runner: str, *, budget: WorkBudget, drop_after_s: float | None = None, dry_run: bool = False
    ) -> Iterator[str]:
        """Fold runs that ended into archives, by runner and day, and drop what that makes needless; yield each ref.

        Only days that are over are folded. Logs of archived runs go, and claims whose request branch is gone.

        Args:
            runner: who archives: what it ended, and what runners ended that have been silent for long.
            budget: what may be spent on reading.
            drop_after_s: the age from which request branches and claims of archived runs go as well; None: never.
            dry_run: only yield what would be written and deleted.

        Raises:
            FencedError: another process archives in this runner's name.
            RemoteError: the bus did not answer.
        """
        ...

    def write_root(self, files: Mapping[str, bytes], over: str | None) -> bool:
        """Replace the root's files; return whether that landed.

        Args:
            files: the whole root.
            over: the tip that is replaced, None where there is none; at another tip nothing is written.
        """
        ...

    def put_record_back(self) -> bool:
        """Write the bus record anew where the last listing showed none; return whether that landed.

        Raises:
            RemoteError: the outcome is not known.
        """
        ...

    def push_wait_s(self) -> float:
        """Return the seconds after which a push that can wait should go; 0 means now. Shared by a host's runners."""
        ...

    def take_push_turn(self) -> bool:
        """Count the next push beforehand if it may go now, so that no other runner of the host takes the same turn."""
        ...

    def claim(self, claim: Claim, over: str | None = None) -> HeldClaim:
        """Create the claim ref, one winner.

        Args:
            claim: the first of its chain.
            over: the tip of a claim that was not accepted, replaced at exactly this commit.

        Raises:
            FencedError: it exists already.
        """
        ...

    def take_over(self, view: ClaimView, claim: Claim) -> HeldClaim:
        """Replace an expired claim at exactly the tip that was seen.

        Raises:
            FencedError: the tip moved.
        """
        ...

    def put_back(self, held_claim: HeldClaim) -> None:
        """Create the claim ref anew, at a held claim whose ref was deleted.

        Raises:
            FencedError: a claim is there, or the run is archived.
        """
        ...

    def withdraw_claim(self, held_claim: HeldClaim) -> bool:
        """Delete the claim ref of a run that was not started where it is still at a held claim; return whether it was.

        Raises:
            RemoteError: it cannot be told.
        """
        ...

    def advance(
        self, held_claim: HeldClaim, claim: Claim, *, log: LogChunk | None = None, beacon: Beacon | None = None
    ) -> HeldClaim:
        """Move the claim on (also to renew its lease), sending a log chunk and a beacon in the same push.

        Only the claim's own acknowledgement counts: a lost log chunk is sent again by the next call.

        Raises:
            FencedError: the tip moved.
        """
        ...

    def resume_log(self, run_id: str) -> LogHead | None:
        """Go on behind the log chunks that an earlier process of this runner sent; return the head of the last.

        None where there are none, or none of ours: the log begins anew.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        ...

    def build_result(self, tree: Tree, run_id: str) -> str:
        """Store a result tree as a root commit, locally, and return its oid; the same input gives the same oid."""
        ...

    def publish(self, held_claim: HeldClaim, claim: Claim, *, log: LogChunk | None = None) -> HeldClaim:
        """End the run: one compare-and-swap to a terminal claim whose parents are the last claim and the result.

        The end of the log goes along in the same push; only the claim's own acknowledgement counts.

        Raises:
            FencedError: the tip moved.
        """
        ...

    def forget(self, run_id: str) -> None:
        """Let go of what is kept here of a run that is not this runner's any more: its result, its unsent log."""
        ...

    def copy_result(self, ref: RequestRef, result_oid: str) -> Delivery:
        """Append the result below `.mac-bridge/result/` on the request branch if it is still where it was."""
        ...

    def claim_commits(self, chain: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
        r"""Return (raw commit object, claim JSON bytes) of each commit of a chain, for the result tree.

        The raw object is what git hashes: sha1 of ``commit <length>\0`` and these bytes is the commit's id.
        """
        ...

    def beacon(self, beacon: Beacon) -> None:
        """Write this runner's beacon."""
        ...

    def withdraw_beacon(self, runner: str) -> bool:
        """Delete this runner's beacon, if nobody wrote another over it; return whether none is left.

        Raises:
            RemoteError: the bus did not answer.
        """
        ...

    def fetch_workload(self, ref: RequestRef, tree: str, into: Path, *, large_files: Handling = "refuse") -> None:
        """Check a workload tree out into an empty directory, bounded before and while it happens.

        Raises:
            RequestRejectedError: the tree breaks a bound or holds what a checkout must not hold.
            PolicyRefusedError: it holds git-lfs pointers and `large_files` is ``refuse``.
            InfrastructureError: a large file could not be fetched.
        """
        ...

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
        ...
