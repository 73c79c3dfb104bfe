"""What a requester calls."""

from __future__ import annotations

from typing import Protocol

from bridge.bus.interface.shared import SharedBus
from bridge.bus.views import LogChunk, ReceivedRequest, RequestRef, RunView, Submission
from bridge.records.request import Workload
from bridge.trust.judgement import TrustAnswer


class RequesterBus(SharedBus, Protocol):
    """What a requester calls: it writes request and cancel branches, and follows its runs."""

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
        ...

    def peek_request(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes without the work tree beside them; nothing of it stays here.

        Raises:
            RequestRejectedError: no request, or more than a request is large, at this commit.
            FencedError: the branch carries a result already.
        """
        ...

    def ask_cancel(self, run_id: str, data: bytes, signature: bytes | None = None) -> None:
        """Push the cancel branch of a run; idempotent."""
        ...

    def foresee(self, run_id: str, ref: str) -> None:
        """Let the call that finds the bus record list a run too that was sent from here and is looked at next.

        A hint, of use only before anything else was asked.
        """
        ...

    def foresee_runners(self) -> None:
        """Let the call that finds the bus record bring the beacons that were good when they were last read here.

        A hint, of use only before anything else was asked.
        """
        ...

    def remember(self, run_id: str, ref: str) -> None:
        """Note the request branch of a run, so that it is listed by its exact names, also on a full bus."""
        ...

    def view(self, run_id: str, *, with_log: bool = False) -> RunView:
        """Return what is known of a run.

        Args:
            run_id: the run.
            with_log: whether its log is read next, and is fetched in the same call.
        """
        ...

    def read_log(self, run_id: str, after_seq: int = -1, tip: str | None = None) -> tuple[LogChunk, ...]:
        """Return log chunks after a sequence number, in order, without gaps.

        Args:
            run_id: the run.
            after_seq: the last that is known.
            tip: the log's tip as it was just seen; None asks the bus for it.

        Raises:
            UntrustedLogError: the log on the bus is not its runner's.
        """
        ...

    def log_signature(self, run_id: str) -> TrustAnswer:
        """Return the state of the signature of the log last read."""
        ...
