"""What requesters and runners both call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Protocol

from bridge.bus.store.gather import WorkBudget
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
from bridge.trust.seals import Refused, Seals


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

    def neighbours(self, run_id: str, runner: str, count: int) -> Neighbours:
        """Return the runs of a runner that were asked for nearest to one, archived ones included.

        What is no claim of this runner, or refused, is passed over, up to a bound.

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

    def read_beacons(
        self, *, as_opened: bool = False, listed: Mapping[str, str] | None = None
    ) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip oid, beacon) of every runner; unreadable ones and those whose signature is refused are left out.

        Of `refused`, what concerns beacons is as of the last call.

        Args:
            as_opened: whether to go by the listing that found the bus record, for a caller to whom that is new enough.
            listed: the tips, by runner name, of a listing that was just made; None lists them.
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
    def has_record(self) -> bool:
        """Whether the last listing showed a bus record; where not, the one that was read before still stands."""
        ...

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The claims, beacons and logs that were read and not accepted because of their signatures, oldest first."""
        ...

    def try_requests(self, template: str) -> str | None:
        """Push to a branch in a request namespace that no runner acts on, delete it; return its name if it stayed.

        Args:
            template: of request branches, with ``{preset}`` and ``{id}``.

        Raises:
            RemoteError: the remote refuses the push.
        """
        ...

    def tend(self) -> None:
        """Pack and delete what this machine's copies have too much of; slow at times, so when nothing waits for it."""
        ...

    def tend_apart(self) -> None:
        """Have a process of its own do what `tend` does, if there is something to do, and do not wait for it."""
        ...

    def collect(self, *, older_than_s: float, dry_run: bool) -> Iterator[str]:
        """Delete branches and logs of runs that ended long ago, and dead beacons; yield each name.

        A claim keeps its result reachable and stays until its runner has archived it.
        """
        ...
