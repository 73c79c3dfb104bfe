"""The runner's memory: events in order, each on the disk before what it announces happens, chained by digest.

Knows no bus; what its events come to for a run is in `bridge.runner.state.history`, the file they lie in is
`bridge.runner.state.database`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import pydantic

from bridge import strictjson
from bridge.limits import JOURNAL_EVENTS_COUNT
from bridge.runner.state.database import DamagedStateError, StateDatabase, reading
from bridge.runner.state.history import ATTESTATION, TOLD, Event, JournalLine, JournalStage, RunHistory, after
from bridge.system.clock import Clock, parse_rfc3339, rfc3339

ZERO: Final = "0" * 64
_DAY: Final = dt.timedelta(days=1)
_AHEAD_MOST: Final = dt.timedelta(hours=1)  # a clock that was set back by less still counts what it dated before
_PRUNE_EVERY: Final = 10  # events are dropped when there are a tenth more than are kept
_ROWS: Final = "SELECT seq, previous, run, event, object, time, detail, digest FROM journal ORDER BY seq"
_Row = tuple[int, str, str, str, str | None, str, str, str]


@dataclass(frozen=True)
class LastAttested:
    """The newest attestation of this runner, and the numbers of those that were made and never published.

    Attributes:
        chain: names the chain of attestations: the digest of the event before its first, or what a start drew.
    """

    sequence: int = 0
    digest: str = ZERO
    run: str | None = None
    void: tuple[int, ...] = ()
    chain: str = ZERO


class Journal:
    """The events of one runner; one process writes them, under the runner's name lock."""

    def __init__(self, database: StateDatabase, clock: Clock, *, events_max: int = JOURNAL_EVENTS_COUNT) -> None:
        """Read what was written.

        Args:
            database: the file.
            clock: dates the events.
            events_max: how many events are kept of runs that have ended.

        Raises:
            DamagedStateError: the chain does not hold.
            JournalError: it cannot be read.
        """
        self._database = database
        self._clock = clock
        self._events_max = events_max
        self._lines: dict[str, int] = {}
        self._count, self._first_seq, self._head = 0, 0, ZERO
        self._histories: dict[str, RunHistory] = {}
        self._claimed: deque[tuple[dt.datetime, str]] = deque()
        with database.read() as rows:
            for number, (line, digest) in enumerate(_checked(rows, database.path)):
                self._first_seq = line.seq if number == 0 else self._first_seq
                self._count, self._head = line.seq + 1, digest
                self._fold(line)
            self._attested = _read_chain(rows)

    @property
    def head(self) -> str:
        """Digest of the last event."""
        return self._head

    @property
    def attested(self) -> LastAttested:
        """Where this runner's chain of attestations is."""
        return self._attested

    def append(self, event: Event, run_id: str, oid: str | None = None, **detail: str | float | None) -> None:
        """Write one event durably; what is only told reaches the disk with the next that is not.

        Raises:
            JournalError: it could not be written; what it announces must not happen.
        """
        with self._database.write(durable=event not in TOLD) as rows:
            line = JournalLine(
                seq=self._count,
                prev_sha256=self._head,
                event=event,
                id=run_id,
                oid=oid,
                time=rfc3339(self._clock.now()),
                detail=detail,
            )
            digest = _insert(rows, line)
            attested = _attested(self._attested, line, self._histories.get(run_id))
            attested = replace(attested, chain=digest) if attested.chain == ZERO else attested
            if attested != self._attested:
                _write_chain(rows, attested)
            pruned = self._prune(rows)
        # Only now: what the disk did not take is not remembered either.
        self._count, self._head, self._attested, self._first_seq = line.seq + 1, digest, attested, pruned
        self._fold(line)

    def begin_chain(self, name: str) -> None:
        """Begin a new chain of attestations: its first number is 1 again.

        Args:
            name: 64 hexadecimal digits that no chain of this runner ever had.

        Raises:
            JournalError: it could not be written.
        """
        attested = LastAttested(chain=name)
        with self._database.write() as rows:
            _write_chain(rows, attested)
        self._attested = attested

    def of(self, run_id: str) -> RunHistory | None:
        """Return the history of a run that has not reached its end here, None of any other."""
        with self._database.read():
            return self._histories.get(run_id)

    def histories(self) -> tuple[RunHistory, ...]:
        """Return the histories of the runs that have not reached their end here, oldest first."""
        with self._database.read():
            return tuple(self._histories.values())

    def runs(self) -> set[str]:
        """Return the ids of the runs that it has events of."""
        with self._database.read() as rows:
            return {run for (run,) in rows.execute("SELECT DISTINCT run FROM journal")}

    def claims_since(self, moment: dt.datetime, principal: str = "unsigned") -> int:
        """Return how many requests of a principal were claimed after a moment within the last day."""
        with self._database.read():
            return sum(1 for _, name in self._claimed_since(moment) if name == principal)

    def claimants_since(self, moment: dt.datetime) -> dict[str, tuple[int, dt.datetime]]:
        """Return for each name that was claimed for after a moment how often, and when first; the newest name last."""
        claimants: dict[str, tuple[int, dt.datetime]] = {}
        with self._database.read():
            for time, name in self._claimed_since(moment):
                count, first = claimants.pop(name, (0, time))
                claimants[name] = (count + 1, first)
        return claimants

    def _claimed_since(self, moment: dt.datetime) -> Iterator[tuple[dt.datetime, str]]:
        """Yield time and name of each claim after a moment, but for those that a clock far ahead of this one dated."""
        latest = self._clock.now() + _AHEAD_MOST
        return ((time, name) for time, name in self._claimed if moment < time <= latest)

    def _prune(self, rows: sqlite3.Connection) -> int:
        """Drop the oldest events of runs that have ended where there are too many; return the first that is kept."""
        if self._count - self._first_seq < self._events_max + max(1, self._events_max // _PRUNE_EVERY):
            return self._first_seq
        first = min([self._count - self._events_max, *self._lines.values()])
        rows.execute("DELETE FROM journal WHERE seq < ?", (first,))
        return first

    def _fold(self, line: JournalLine) -> None:
        """Keep what recovery and rates need; a run that ended is only in the file."""
        history = after(self._histories.get(line.id), line)
        if history is None:
            self._histories.pop(line.id, None)
            self._lines.pop(line.id, None)
        else:
            self._histories[line.id] = history
            self._lines.setdefault(line.id, line.seq)
        if line.event == "claimed":
            time = parse_rfc3339(line.time)
            self._claimed.append((time, str(line.detail.get("principal", "unsigned"))))
            while self._claimed and abs(time - self._claimed[0][0]) > _DAY:
                self._claimed.popleft()


def _attested(last: LastAttested, line: JournalLine, before: RunHistory | None) -> LastAttested:
    """Return where the chain is after an event; a run that was lost to another runner leaves its number void."""
    if line.event == "result_built" and ATTESTATION in line.detail:
        sequence, digest = line.detail["sequence"], line.detail[ATTESTATION]
        return replace(last, sequence=int(sequence or 0), digest=str(digest), run=line.id)
    if line.event == "fenced" and before is not None and before.stage < JournalStage.PUBLISHED:
        return replace(last, void=tuple(sorted({*last.void, *before.sequences})))
    return last


def verify_journal(path: Path) -> int:
    """Return how many events the journal in a state file has.

    Raises:
        JournalError: there is none, or an event was altered, removed or added; the message says which.
    """
    with reading(path) as rows:
        return sum(1 for _ in _checked(rows, path))


def read_lines(path: Path) -> Iterator[JournalLine]:
    """Yield the events of a journal nobody has to hold, oldest first, as far back as it goes.

    Raises:
        JournalError: the chain does not hold.
    """
    with reading(path) as rows:
        for line, _ in _checked(rows, path):
            yield line


def _checked(rows: sqlite3.Connection, path: Path) -> Iterator[tuple[JournalLine, str]]:
    """Yield the events with their digests.

    Raises:
        DamagedStateError: an event is not the one that was written.
    """
    last: tuple[int, str] | None = None
    listed: Iterable[_Row] = rows.execute(_ROWS)
    for seq, previous, run, event, oid, time, detail, digest in listed:
        begins = seq > 0 or previous == ZERO if last is None else (seq, previous) == last
        if not begins or _digest(seq, previous, run, event, oid, time, detail) != digest:
            raise _forged(path, seq)
        try:
            line = JournalLine(
                seq=seq, prev_sha256=previous, event=cast("Event", event), id=run, oid=oid, time=time,
                detail=json.loads(detail),
            )  # fmt: skip
        except pydantic.ValidationError as error:
            raise DamagedStateError(f"{path}, event {seq}: {str(error).splitlines()[0]}") from error
        last = (seq + 1, digest)
        yield line, digest


def _insert(rows: sqlite3.Connection, line: JournalLine) -> str:
    """Write one event and return its digest, which holds that of the event before."""
    detail = strictjson.encode(line.detail).decode()
    digest = _digest(line.seq, line.prev_sha256, line.id, line.event, line.oid, line.time, detail)
    rows.execute(
        "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (line.seq, line.prev_sha256, line.id, line.event, line.oid, line.time, detail, digest),
    )
    return digest


def _digest(*columns: str | int | None) -> str:
    return hashlib.sha256(strictjson.encode(columns)).hexdigest()


def _forged(path: Path, seq: int) -> DamagedStateError:
    return DamagedStateError(
        f"{path}, event {seq}: the chain does not hold; an event was altered, removed or added",
        remedy="restart the runner: it moves the file aside and begins with what it signed on the bus",
    )


def _read_chain(rows: sqlite3.Connection) -> LastAttested:
    row = rows.execute("SELECT sequence, digest, run, void, name FROM chain").fetchone()
    if row is None:
        return LastAttested()
    sequence, digest, run, void, name = row
    return LastAttested(sequence, digest, run, tuple(json.loads(void)), name)


def _write_chain(rows: sqlite3.Connection, last: LastAttested) -> None:
    values = (last.chain, last.sequence, last.digest, last.run, json.dumps(last.void))
    rows.execute("INSERT OR REPLACE INTO chain VALUES (0, ?, ?, ?, ?, ?)", values)
