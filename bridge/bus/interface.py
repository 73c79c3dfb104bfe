"""What a transport does for requesters and runners: the same records over git, ssh or memory.

`RequesterBus` and `RunnerBus` are what each side may call; `SharedBus` is what both call. One object may serve both:
`bridge.bus.refbus.RefBus` does. Every call may be slow and may raise `bridge.errors.RemoteError`; none decides policy,
judges evidence or prints.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bridge.bus.content.large_files import Handling
from bridge.bus.store.gather import WorkBudget
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
    WorkloadCommit,
)
from bridge.records import Beacon, BusRecord, Claim, Delivery, LogHead, Workload
from bridge.trust.judgement import TrustAnswer
from bridge.trust.seals import Refused, Seals


class History(Protocol):
    """The commits that a decision about trust reads; each is hashed again, and only the objects themselves are used."""

    def workload_commit(self, ref: RequestRef, oid: str) -> WorkloadCommit:
        """Return the commit a request names as its workload.

        Raises:
            BusError: the bus does not give it, or not as a commit.
        """
        ...

    def first_parents(self, ref: str) -> Iterator[str]:
        """Yield the commits of a ref and its first parents, newest first, the whole history fetched.

        Raises:
            BusError: there is no such ref, or its history is cut off.
        """
        ...

    def cancels(self, run_id: str, seen: Container[str] = ()) -> tuple[ReceivedRequest, ...]:
        """Return the untrusted bytes of a bounded number of cancel branches of a run; none where one holds no cancel.

        Args:
            run_id: the run.
            seen: commits not to be read again, so that repeated calls come to every branch.
        """
        ...


class SharedBus(Protocol):
    """What requesters and runners both call: they read, check signatures, and delete the refs of old runs."""

    @property
    def route(self) -> str:
        """Where this bus is, without user information."""
        ...

    @property
    def hosted(self) -> bool:
        """Whether the remote is another's machine by its name, where pushes and listings are to be spared."""
        ...

    def identity(self) -> BusRecord:
        """Return the bus record.

        Raises:
            BusMissingError: the remote carries none.
        """
        ...

    def snapshot(self, window: ListingWindow | None = None) -> Snapshot:
        """List the bus once: all of it, or what a window shows, which costs the same however full the bus is."""
        ...

    def mark(self) -> Hashable:
        """Return a value that differs once a request, claim or log has changed; None where only a listing tells.

        Costs next to nothing. One that did not differ proves nothing.
        """
        ...

    def read_request(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes; bounded before they are fetched.

        Raises:
            RequestRejectedError: no request, or too large, at this commit.
        """
        ...

    def read_claim(self, run_id: str, oid: str | None = None) -> ClaimView | None:
        """Return the claim chain of a run, or None when there is none at its ref.

        Raises:
            ObjectError: what is there is no claim chain of this run.
        """
        ...

    def archived(self) -> Iterator[ArchivedClaim]:
        """Yield the runs in the archives, newest first; a day is fetched when its first run is asked for.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def neighbours(self, run_id: str, count: int) -> Mapping[str, str]:
        """Return claim commits, by run id, of the runs that were asked for nearest to one, archived ones included.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def newest_claims(self, tips: Mapping[str, str], budget: WorkBudget) -> Mapping[str, ClaimTip]:
        """Return the newest claims, by run id, of {run id: tip}, without their chains.

        Read in few fetches and each once; what is no claim is left out, and so is what the budget does not reach.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def read_result(self, oid: str) -> Tree:
        """Return the result tree of a result commit (terminal claims name it); bounded.

        Raises:
            IntegrityError: the tree breaks its bounds or is not a result tree.
        """
        ...

    def read_beacons(self) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip oid, beacon) of every runner; unreadable ones and those whose signature is refused are left out.

        Of `refused`, what concerns beacons is as of the last call.
        """
        ...

    def use_seals(self, seals: Seals) -> None:
        """Sign claims, beacons and log heads with these keys, and verify with them what others signed."""
        ...

    def use_root(self, judge: Callable[[Mapping[str, bytes] | None, str], BusRecord | None]) -> None:
        """Go by the bus record of the root that a function accepts, whenever record or root move.

        Args:
            judge: takes the untrusted files at the root's ref, None where there is none, and the id of the bus;
                returns the record in the root that counts for this side, None where none does.
        """
        ...

    @property
    def root_tip(self) -> str | None:
        """The tip of the root's ref when it was last listed, None where there is none."""
        ...

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The claims, beacons and logs that were read and not accepted because of their signatures, oldest first."""
        ...

    def tend(self) -> None:
        """Pack and delete what this machine's copies have too much of; slow at times, so when nothing waits for it."""
        ...

    def collect(self, *, older_than_s: float, dry_run: bool) -> Iterator[str]:
        """Delete branches and logs of runs that ended long ago, and dead beacons; yield each name.

        A claim keeps its result reachable and stays until its runner has archived it.
        """
        ...


class RequesterBus(SharedBus, Protocol):
    """What a requester calls: it writes request and cancel branches, and follows its runs."""

    def submit(self, data: bytes, ref: str, workload: Workload | None, signature: bytes | None = None) -> Submission:
        """Push a request branch, created and never overwritten; the user's repository stays as it is."""
        ...

    def ask_cancel(self, run_id: str, data: bytes, signature: bytes | None = None) -> None:
        """Push the cancel branch of a run; idempotent."""
        ...

    def probe(self, ref: str) -> str | None:
        """Push a branch in the request namespace that no runner acts on, and delete it; return its name if it stayed.

        Args:
            ref: full name of a request branch that was never sent; its cancel branch is what is pushed.

        Raises:
            RemoteError: the remote refuses it.
        """
        ...

    def remember(self, run_id: str, ref: str) -> None:
        """Note the request branch of a run, so that it is listed by its exact names, also on a full bus."""
        ...

    def view(self, run_id: str) -> RunView:
        """Return what is known of a run."""
        ...

    def read_log(self, run_id: str, after_seq: int = -1) -> tuple[LogChunk, ...]:
        """Return log chunks after a sequence number, in order, without gaps.

        Raises:
            UntrustedLogError: the log on the bus is not its runner's.
        """
        ...

    def log_signature(self, run_id: str) -> TrustAnswer:
        """Return the state of the signature of the log last read."""
        ...


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

    def cancelled(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these runs have a cancel branch, listing no more than that."""
        ...

    def stop_when(self, asked: Callable[[], bool]) -> None:
        """Give calls of this object up soon after `asked` returns True: they raise `bridge.errors.GivenUpError`."""
        ...

    def beside(self) -> RunnerBus:
        """Return the same bus for work that goes on beside: its calls wait for no others; `stop_when` is its own."""
        ...

    def bad_claim(self, oid: str) -> str | None:
        """Return why what was read at a claim ref is no claim, None where it is one or was not read."""
        ...

    def create(self, record: BusRecord) -> None:
        """Write the bus record on a remote that carries none."""
        ...

    def update(self, record: BusRecord) -> None:
        """Replace the bus record by a newer one of the same bus, by compare-and-swap; BusError when it moved."""
        ...

    def repair(self, *, dry_run: bool) -> Iterator[BadRef]:
        """Delete claim, log and beacon refs that can never be read, each where it was seen; yield each of them.

        Raises:
            RemoteError: the bus did not answer.
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

    def take_over(self, seen: ClaimView, claim: Claim) -> HeldClaim:
        """Replace an expired claim at exactly the tip that was seen.

        Raises:
            FencedError: the tip moved.
        """
        ...

    def advance(
        self, held: HeldClaim, claim: Claim, *, log: LogChunk | None = None, beacon: Beacon | None = None
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

    def publish(self, held: HeldClaim, claim: Claim, *, log: LogChunk | None = None) -> HeldClaim:
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
