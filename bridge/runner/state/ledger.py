"""Which requests this runner has let in: a request runs under the claim it was first let in under, and no other.

JSON lines, each fsync'd before the run it is about goes on, kept far longer than any request is valid: refs can be
deleted and pushed again, a clock can be set back, this file stays. Knows no bus and no signature.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from pathlib import Path
from typing import Final

import pydantic

from bridge.errors import JournalError, RequestRejectedError
from bridge.records.base import Moment, Oid, Record, RunId, Sha256, Text
from bridge.records.request import Request
from bridge.runner.state.journal import append_line
from bridge.strictjson import StrictJsonError
from bridge.system.clock import Clock, parse_rfc3339, rfc3339
from bridge.system.durable import write_atomically

KEPT: Final = dt.timedelta(days=30)


class LedgerLine(Record):
    """One request that was let in.

    Attributes:
        id: the run id, random: the nonce.
        digest: sha256 of the request's bytes.
        claim: the first commit of the claim chain; random, so another chain is another try.
        principal: who signed it, or ``unsigned``.
    """

    id: RunId
    bus_id: Text
    digest: Sha256
    claim: Oid
    principal: Text
    time: Moment


class Ledger:
    """An append-only file; one process writes it, under the runner's name lock."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open or create the ledger; a torn last line (a crash while writing) is cut off, old lines are left out.

        Raises:
            JournalError: a line is unreadable: what it would have refused is not known.
        """
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], LedgerLine] = {}
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = [self._parsed(raw, number) for number, raw in enumerate(whole.splitlines(), 1)]
        kept = [line for line in lines if parse_rfc3339(line.time) + KEPT > clock.now()]
        if len(kept) != len(lines) or whole != data:
            write_atomically(path, b"".join(line.canonical() + b"\n" for line in kept))
        self._known = {(line.bus_id, line.id): line for line in kept}

    def admit(self, request: Request, data: bytes, claim: str, principal: str) -> None:
        """Let a request in, once; the same bytes under the same claim chain are the same run going on.

        Raises:
            RequestRejectedError: it was let in before.
            JournalError: it could not be written down; the run must not go on.
        """
        line = LedgerLine(
            id=request.id,
            bus_id=request.bus_id,
            digest=hashlib.sha256(data).hexdigest(),
            claim=claim,
            principal=principal,
            time=rfc3339(self._clock.now()),
        )
        with self._lock:
            known = self._known.get((line.bus_id, line.id))
            if known is None:
                append_line(self._path, line.canonical())
                self._known[(line.bus_id, line.id)] = line
            elif (known.digest, known.claim) != (line.digest, line.claim):
                raise RequestRejectedError(
                    f"this runner has let a request with id {line.id} in before, at {known.time}: a request runs once",
                    remedy="kakeya-mac retry ID sends it again under a new id",
                )

    def _parsed(self, raw: bytes, number: int) -> LedgerLine:
        try:
            return LedgerLine.parse(raw)
        except (StrictJsonError, pydantic.ValidationError) as error:
            raise JournalError(
                f"{self._path}, line {number}: {str(error).splitlines()[0]}",
                remedy="keep the file for inspection and move it away; requests of the last day could run again",
            ) from error
