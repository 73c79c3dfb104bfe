"""Which requests this runner has let in: a request runs under the claim it was first let in under, and no other.

Each is on the disk before the run it is about goes on, and stays far longer than any request is valid: refs can be
deleted and pushed again, a clock can be set back. Knows no bus and no signature.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bridge.errors import RequestRejectedError
from bridge.records.request import Request
from bridge.runner.state.database import StateDatabase
from bridge.system.clock import Clock, parse_rfc3339, rfc3339

KEPT: Final = dt.timedelta(days=30)
PERHAPS_BEGUN: Final = ""  # in the place of a claim: nobody knows under which it was begun, if it was


@dataclass(frozen=True)
class LetIn:
    """One request that was let in.

    Attributes:
        bus_id: the bus it came from.
        run: the run id, random: the nonce.
        digest: sha256 of the request's bytes; empty where only its claim is known.
        claim: the first commit of the claim chain; random, so another chain is another try.
        principal: who signed it, or ``unsigned``.
        time: when it was let in.
    """

    bus_id: str
    run: str
    digest: str
    claim: str
    principal: str
    time: str


class Ledger:
    """The requests of thirty days at least; one process writes them, under the runner's name lock."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        """Forget what is older than any request can be, by this clock and by the newest request that was let in.

        A clock that is wrong for one start would empty it otherwise, and every request that is valid would run again.

        Raises:
            JournalError: it cannot be written.
        """
        self._database, self._clock = database, clock
        with database.write() as rows:
            (newest,) = rows.execute("SELECT max(time) FROM ledger").fetchone()
            if newest is not None:
                until = min(clock.now(), parse_rfc3339(newest)) - KEPT
                rows.execute("DELETE FROM ledger WHERE time <= ?", (rfc3339(until),))

    def admit(self, request: Request, data: bytes, claim: str, principal: str) -> None:
        """Let a request in, once; the same bytes under the same claim chain are the same run going on.

        Raises:
            RequestRejectedError: it was let in before.
            JournalError: it could not be written down; the run must not go on.
        """
        digest, now = hashlib.sha256(data).hexdigest(), rfc3339(self._clock.now())
        with self._database.write() as rows:
            earlier = rows.execute(
                "SELECT digest, claim, time FROM ledger WHERE bus = ? AND run = ?", (request.bus_id, request.id)
            ).fetchone()
            if earlier is None:
                values = (request.bus_id, request.id, digest, claim, principal, now)
                rows.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", values)
        if earlier is not None and earlier[1] == PERHAPS_BEGUN:
            raise RequestRejectedError(
                f"this runner may have begun request {request.id} before its state and the bus's claim were lost: a "
                "request runs once",
                remedy="kakeya-mac retry ID sends it again under a new id",
            )
        if earlier is not None and (earlier[0] not in {digest, ""} or earlier[1] != claim):
            raise RequestRejectedError(
                f"this runner has let a request with id {request.id} in before, at {earlier[2]}: a request runs once",
                remedy="kakeya-mac retry ID sends it again under a new id",
            )

    def read_back(self, requests: Iterable[LetIn]) -> None:
        """Note requests that this runner let in before its state was lost; what is known already stays.

        Raises:
            JournalError: it could not be written.
        """
        values = [
            (let_in.bus_id, let_in.run, let_in.digest, let_in.claim, let_in.principal, let_in.time)
            for let_in in requests
        ]
        with self._database.write() as rows:
            rows.executemany("INSERT OR IGNORE INTO ledger VALUES (?, ?, ?, ?, ?, ?)", values)

    def runs(self, bus_id: str) -> set[str]:
        """Return the ids of the requests of a bus that it holds."""
        with self._database.read() as rows:
            return {run for (run,) in rows.execute("SELECT run FROM ledger WHERE bus = ?", (bus_id,))}

    def count(self) -> int:
        """Return how many requests it holds."""
        with self._database.read() as rows:
            (number,) = rows.execute("SELECT count(*) FROM ledger").fetchone()
        return int(number)
