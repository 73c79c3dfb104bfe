"""What a transport does for requester and runner: the same records over git, ssh or a fleet.

One object serves both sides; a client never calls the runner's verbs. All of it may be slow and may raise
`bridge.errors.RemoteError`; nothing here decides policy, judges evidence or prints.

Order that a runner keeps: claim -> advance(started) -> (log, renew)* -> publish -> copy. Each of claim, advance and
publish is one compare-and-swap on the run's claim ref; `FencedError` means that somebody else moved it and that
nothing was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bridge.bus.largefiles import Handling
from bridge.records import Beacon, BusRecord, Claim, Delivery, LogHead, Workload


@dataclass(frozen=True)
class RequestRef:
    """A pushed request: its id (from the branch name), full ref name, and the commit it points to."""

    id: str
    ref: str
    oid: str


@dataclass(frozen=True)
class ReceivedRequest:
    """Untrusted bytes as they were pushed; `signature` is the sibling blob, or None."""

    ref: RequestRef
    data: bytes
    signature: bytes | None


@dataclass(frozen=True)
class Snapshot:
    """One listing of the bus: what exists now, nothing fetched.

    Attributes:
        requests: pushed requests, oldest id first, those that already carry a result left out where that is known.
        claims: claim ref tips by run id.
        cancels: run ids somebody asked to cancel.
        beacons: beacon ref tips by runner name.
        logs: log ref tips by run id.
        bytes_received: what this listing cost on the wire, 0 when unknown.
    """

    requests: tuple[RequestRef, ...]
    claims: Mapping[str, str]
    cancels: frozenset[str]
    beacons: Mapping[str, str]
    logs: Mapping[str, str]
    bytes_received: int = 0


@dataclass(frozen=True)
class Held:
    """A claim this runner owns: the tip it may replace and the chain up to it (commit ids, oldest first)."""

    oid: str
    claim: Claim
    chain: tuple[str, ...]


@dataclass(frozen=True)
class ClaimView:
    """A claim chain as an observer reads it: tip, its record, and all records oldest first."""

    oid: str
    claim: Claim
    history: tuple[Claim, ...]
    chain: tuple[str, ...]


@dataclass(frozen=True)
class LogChunk:
    """A piece of a live log; `data` is untrusted."""

    head: LogHead
    data: bytes


@dataclass(frozen=True)
class RunView:
    """Everything a client can know of a run without reading its result."""

    request: RequestRef | None
    claim: ClaimView | None
    log: str | None
    delivery: Delivery | None
    cancel_asked: bool


@dataclass(frozen=True)
class WorkloadCommit:
    """A commit as git hashes it (without git's header), and its tree with `.mac-bridge` taken out."""

    raw: bytes
    tree: str


@dataclass(frozen=True)
class Submission:
    """What `submit` did: the branch commit, and whether it was already there with the same bytes."""

    ref: RequestRef
    reattached: bool


@dataclass(frozen=True)
class Tree:
    """Files of a result tree by relative POSIX path, `manifest.json` included."""

    files: Mapping[str, bytes] = field(default_factory=dict)


class History(Protocol):
    """What a decision about trust reads of a bus; every commit is hashed again, nothing beside the objects counts."""

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

    def cancels(self, run_id: str) -> tuple[ReceivedRequest, ...]:
        """Return the untrusted bytes of every cancel branch of a run."""
        ...


class Bus(Protocol):
    """A bus, seen from either side."""

    @property
    def route(self) -> str:
        """Where this bus is, without user information."""
        ...

    @property
    def history(self) -> History:
        """What trust depends on."""
        ...

    # Both sides
    def identity(self) -> BusRecord:
        """Return the bus record.

        Raises:
            BusMissingError: the remote carries none.
        """
        ...

    def snapshot(self) -> Snapshot:
        """List the bus once."""
        ...

    def read_request(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes; bounded before they are fetched.

        Raises:
            RequestRejectedError: no request, or too large, at this commit.
        """
        ...

    def read_claim(self, run_id: str, oid: str | None = None) -> ClaimView | None:
        """Return the claim chain of a run, or None when there is none."""
        ...

    def read_beacons(self) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip oid, beacon) of every runner; unreadable ones are left out."""
        ...

    # Requester
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

    def view(self, run_id: str) -> RunView:
        """Return what is known of a run."""
        ...

    def read_log(self, run_id: str, after_seq: int = -1) -> tuple[LogChunk, ...]:
        """Return log chunks after a sequence number, in order, without gaps."""
        ...

    def read_result(self, oid: str) -> Tree:
        """Return the result tree of a result commit (terminal claims name it); bounded.

        Raises:
            IntegrityError: the tree breaks its bounds or is not a result tree.
        """
        ...

    # Runner
    def create(self, record: BusRecord) -> None:
        """Write the bus record on a remote that carries none."""
        ...

    def update(self, record: BusRecord) -> None:
        """Replace the bus record by a newer one of the same bus, by compare-and-swap; BusError when it moved."""
        ...

    def push_wait_s(self) -> float:
        """Return the seconds after which a push that can wait should go; 0 means now. Shared by a host's runners."""
        ...

    def take_push_turn(self) -> bool:
        """Count the next push beforehand if it may go now, so that no other runner of the host takes the same turn."""
        ...

    def claim(self, claim: Claim) -> Held:
        """Create the claim ref, one winner.

        Raises:
            FencedError: it exists already.
        """
        ...

    def take_over(self, seen: ClaimView, claim: Claim) -> Held:
        """Replace an expired claim at exactly the tip that was seen.

        Raises:
            FencedError: the tip moved.
        """
        ...

    def advance(self, held: Held, claim: Claim, *, log: LogChunk | None = None, beacon: Beacon | None = None) -> Held:
        """Move the claim on (also to renew its lease), sending a log chunk and a beacon in the same push.

        Only the claim's own acknowledgement counts: a lost log chunk is sent again by the next call.

        Raises:
            FencedError: the tip moved.
        """
        ...

    def build_result(self, tree: Tree, run_id: str) -> str:
        """Store a result tree as a root commit, locally, and return its oid; the same input gives the same oid."""
        ...

    def publish(self, held: Held, claim: Claim) -> Held:
        """End the run: one compare-and-swap to a terminal claim whose parents are the last claim and the result.

        Raises:
            FencedError: the tip moved.
        """
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
        """Write this runner's sign of life."""
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

    def collect(self, *, older_than_s: float, dry_run: bool) -> Iterator[str]:
        """Delete refs of runs that ended long ago; yield each name."""
        ...
