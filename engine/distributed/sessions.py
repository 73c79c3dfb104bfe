"""The sessions of a server: their ids, how many there may be, and until when each is kept.

A session outlives its stream by its lease, so that a client that lost the connection goes on where it was. What is not
renewed goes, whoever forgot it. Knows no streams; time comes in as a function of monotonic seconds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.session import DraftSession, Served
from engine.distributed.tensors import Budget
from engine.errors import SessionError

LEASE_S = 30.0
MOST_SESSIONS = 64
ID_BYTES = 16
MOST_WAITING_BYTES = 1 << 30
"""Of rows over all sessions, and at least those of two blocks: each session alone may have several blocks waiting."""
MOST_KEPT_TOGETHER = 1 << 20
"""Over all sessions, where the drafter keeps all that it was shown: a gigabyte."""


@dataclass(slots=True)
class _Lease:
    session: DraftSession
    until_s: float
    attached: bool


class SessionTable:
    """The sessions of one served drafter."""

    def __init__(
        self, served: Served, now_s: Callable[[], float], lease_s: float = LEASE_S, most: int = MOST_SESSIONS
    ) -> None:
        self.served = served
        self.lease_s = lease_s
        self._now_s = now_s
        self._most = most
        self._leases: dict[str, _Lease] = {}
        self._budget = Budget(max(MOST_WAITING_BYTES, 2 * served.most_bytes), "bytes of rows")
        self._kept = Budget(MOST_KEPT_TOGETHER, "tokens that are kept")

    def __len__(self) -> int:
        """Return how many sessions are held."""
        return len(self._leases)

    def open(self, message: pb.Open) -> DraftSession:
        """Return a new session, or the one to go on with, for the stream that asks.

        Raises:
            SessionError: FAILED_PRECONDITION if the two sides do not fit, NOT_FOUND if there is no such session any
                more, ABORTED if another stream has it, RESOURCE_EXHAUSTED if there are too many.
        """
        row_format = self.served.check_opened(message)
        shaping = self.served.shaping(message)
        self.sweep()
        if message.resume:
            return self._resumed(message.resume)
        if len(self._leases) >= self._most:
            raise SessionError(
                "RESOURCE_EXHAUSTED", f"{len(self._leases)} sessions are open; at most {self._most} are kept"
            )
        session = DraftSession(
            self.served, secrets.token_hex(ID_BYTES), row_format, shaping, self._budget, kept=self._kept
        )
        self._leases[session.identity] = _Lease(session, self._now_s() + self.lease_s, attached=True)
        return session

    def renew(self, session: DraftSession) -> None:
        """Keep a session for another lease.

        Raises:
            SessionError: NOT_FOUND if its lease had run out.
        """
        lease = self._leases.get(session.identity)
        if lease is None or lease.until_s < self._now_s():
            self.close(session)
            raise SessionError("NOT_FOUND", f"the session's lease of {self.lease_s:g} s had run out; open a new one")
        lease.until_s = max(lease.until_s, self._now_s() + self.lease_s)

    def detach(self, session: DraftSession) -> None:
        """Keep a session whose stream was lost until its lease runs out."""
        lease = self._leases.get(session.identity)
        if lease is not None:
            lease.attached = False

    def close(self, session: DraftSession) -> None:
        """End a session; one that is gone already is none."""
        if self._leases.pop(session.identity, None) is not None:
            session.close()

    def sweep(self) -> int:
        """End every session whose lease ran out; return how many."""
        now_s = self._now_s()
        over = [lease.session for lease in self._leases.values() if lease.until_s < now_s]
        for session in over:
            self.close(session)
        return len(over)

    def _resumed(self, identity: str) -> DraftSession:
        lease = self._leases.get(identity)
        if lease is None:
            raise SessionError("NOT_FOUND", "no session of that id, or its lease ran out; open a new one")
        if lease.attached:
            raise SessionError("ABORTED", "the session's other stream still goes on; open a new one")
        lease.attached = True
        self.renew(lease.session)
        return lease.session
