"""What a requester calls, over a store of refs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bridge.bus.refs import names
from bridge.bus.refs.runs import prefixes_of
from bridge.bus.sides.shared import SharedBus
from bridge.bus.store.interface import MissingObjectError
from bridge.bus.views import (
    LogChunk,
    ReceivedRequest,
    RequestRef,
    RunView,
    Submission,
)
from bridge.errors import BusError, RunNotFoundError
from bridge.request import run_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.records.bus import Beacon
    from bridge.records.request import Workload
    from bridge.trust.judgement import TrustAnswer

MOVED_TRIES: Final = 2


class RequesterBus(SharedBus):
    """What a requester calls: it writes request and cancel branches, and follows its runs."""

    GO_ON = "kakeya-mac init --bus {pinned}; what was sent is there too"

    def submit(
        self, data: bytes, ref: str, workload: Workload | None, signature: bytes | None = None, *, first: bool = False
    ) -> Submission:
        """Push a request branch, created and never overwritten; the user's repository stays as it is.

        Args:
            data: the bytes of the request.
            ref: the full name of its branch.
            workload: the commit it brings, None for none.
            signature: of the bytes, None for an unsigned request.
            first: whether these bytes were never sent before, so that nobody has to look whether they arrived.
        """
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
        submission = self._requests.submit(
            data, RequestRef(run_id, ref, ""), workload, signature, first=first, starts_ci=record.wake == "actions"
        )
        self._runs.remember(run_id, ref)
        return submission

    def peek_request(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes without the work tree beside them; nothing of it stays here.

        Raises:
            RequestRejectedError: no request, or more than a request is large, at this commit.
            FencedError: the branch carries a result already.
        """
        return self._requests.peek(ref)

    def ask_cancel(self, run_id: str, data: bytes, signature: bytes | None = None) -> None:
        """Push the cancel branch of a run; idempotent."""
        ref = self._runs.request_ref(self.identity(), run_id)
        if ref is None:
            raise RunNotFoundError(f"no request branch of run {run_id} on {self.route}", remedy="kakeya-mac ls")
        self._requests.cancel(run_id, ref, data, signature, int(self._clock.now().timestamp()))

    def remember(self, run_id: str, ref: str) -> None:
        """Note the request branch of a run, so that it is listed by its exact names, also on a full bus."""
        self._runs.remember(run_id, ref)

    def foresee(self, run_id: str, ref: str) -> None:
        """Let the call that finds the bus record list a run too that was sent from here and is looked at next.

        A hint, of use only before anything else was asked.
        """
        self._identity.list_beside(prefixes_of(run_id, ref))

    def foresee_runners(self) -> None:
        """Let the call that finds the bus record bring the beacons that were good when they were last read here.

        A hint, of use only before anything else was asked.
        """
        self._identity.list_first(self._known.list)

    def read_beacons(
        self, *, as_opened: bool = False, listed: Mapping[str, str] | None = None
    ) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip oid, beacon) of every runner, and remember which were good; see `SharedBus`."""
        beacons = super().read_beacons(as_opened=as_opened, listed=listed)
        self._known.keep(names.beacon_ref(self.identity().prefix, beacon.runner) for _, beacon in beacons)
        return beacons

    def view(self, run_id: str, *, with_log: bool = False) -> RunView:
        """Return what is known of a run.

        Args:
            run_id: the run.
            with_log: whether its log is read next, and is fetched in the same call.
        """
        record = self.identity()
        for _ in range(MOVED_TRIES):  # a remote of protocol v0 gives only what is at a ref: what moved is listed again
            with suppress(MissingObjectError):
                return self._runs.view(record, run_id, self.read_claim, self._read_archived, with_log=with_log)
        return self._runs.view(record, run_id, self.read_claim, self._read_archived, with_log=with_log)

    def read_log(self, run_id: str, after_seq: int = -1, tip: str | None = None) -> tuple[LogChunk, ...]:
        """Return log chunks after a sequence number, in order, without gaps.

        Args:
            run_id: the run.
            after_seq: the last that is known.
            tip: the log's tip as it was just seen; None asks the bus for it.

        Raises:
            UntrustedLogError: the log on the bus is not its runner's.
        """
        return self._logs.read(run_id, after_seq, tip)

    def log_signature(self, run_id: str) -> TrustAnswer:
        """Return the state of the signature of the log last read."""
        return self._logs.signature(run_id)
