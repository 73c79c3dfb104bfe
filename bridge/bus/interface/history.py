"""The commits and cancels that a decision about trust reads."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Protocol

from bridge.bus.views import (
    ReceivedRequest,
    RequestRef,
    WorkloadCommit,
)


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

    def cancels(self, run_id: str, read_before: Container[str] = ()) -> tuple[ReceivedRequest, ...]:
        """Return the untrusted bytes of a bounded number of cancel branches of a run; none where one holds no cancel.

        Args:
            run_id: the run.
            read_before: commits not to be read again, so that repeated calls come to every branch.
        """
        ...
