"""The runner's memory: JSON lines, each on the disk before what it announces happens, chained by digest.

Knows no bus; what its lines come to for a run is in `bridge.runner.state.history`, how they are spread over files in
`bridge.runner.state.segments`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.errors import JournalError
from bridge.limits import JOURNAL_FILE_MAX_BYTES
from bridge.runner.state.history import ATTESTATION, TOLD, Event, JournalLine, JournalStage, RunHistory, after
from bridge.runner.state.segments import ZERO, Entry, JournalSnapshot, begin_next, files_of, read_file, read_files
from bridge.system.clock import Clock, parse_rfc3339, rfc3339
from bridge.system.durable import append_whole

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class LastAttested:
    """The newest attestation of this journal, and the numbers of those that were made and never published."""

    sequence: int = 0
    digest: str = ZERO
    run: str | None = None
    void: tuple[int, ...] = ()


class Journal:
    """An append-only file after the other; one process writes them, under the runner's name lock."""

    def __init__(self, path: Path, clock: Clock, *, file_max_bytes: int = JOURNAL_FILE_MAX_BYTES) -> None:
        """Open or create the journal; a torn last line (a crash while writing) is cut off.

        Args:
            path: the file that is written; full ones lie beside it.
            clock: dates the lines.
            file_max_bytes: how much is added to a file before the next begins.

        Raises:
            JournalError: the chain does not hold, or the file cannot be written.
        """
        self._path = path
        self._clock = clock
        self._file_max_bytes = file_max_bytes
        self._lock = threading.Lock()
        self._count = 0
        self._file_first, self._file_bytes = 0, 0
        self._lines: dict[str, list[JournalLine]] = {}
        self._head = ZERO
        self._histories: dict[str, RunHistory] = {}
        self._claimed: deque[tuple[dt.datetime, str]] = deque()
        self._first = ZERO
        self._attested = LastAttested()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._cut_torn_line()
        for line, raw in read_file(path) if path.exists() else ():
            self._remember(line, raw)
        self._fd = self._opened()
        _sync_folder(path.parent)

    @property
    def head(self) -> str:
        """Digest of the last line."""
        return self._head

    @property
    def first(self) -> str:
        """Digest of the first line, which names this journal; zeros while it is empty."""
        return self._first

    @property
    def attested(self) -> LastAttested:
        """Where this runner's chain of attestations is."""
        with self._lock:
            return self._attested

    def append(self, event: Event, run_id: str, oid: str | None = None, **detail: str | float | None) -> None:
        """Write one event durably; what is only told reaches the disk with the next that is not.

        Raises:
            JournalError: it could not be written; what it announces must not happen.
        """
        with self._lock:
            line = JournalLine(
                seq=self._count,
                prev_sha256=self._head,
                event=event,
                id=run_id,
                oid=oid,
                time=rfc3339(self._clock.now()),
                detail=detail,
            )
            raw = line.canonical() + b"\n"
            try:
                append_whole(self._fd, raw, durable=event not in TOLD)
            except OSError as error:
                raise JournalError(
                    f"cannot write {self._path}: {error.strerror}", remedy="free space, restart"
                ) from error
            self._remember(line, raw)
            if self._file_bytes >= self._file_max_bytes:
                self._begin_next_file()

    def of(self, run_id: str) -> RunHistory | None:
        """Return the history of a run that has not reached its end here, None of any other."""
        with self._lock:
            return self._histories.get(run_id)

    def histories(self) -> tuple[RunHistory, ...]:
        """Return the histories of the runs that have not reached their end here, oldest first."""
        with self._lock:
            return tuple(self._histories.values())

    def claims_since(self, moment: dt.datetime, principal: str = "unsigned") -> int:
        """Return how many requests of a principal were claimed after a moment within the last day."""
        with self._lock:
            return sum(1 for time, name in self._claimed if time > moment and name == principal)

    def claimants_since(self, moment: dt.datetime) -> dict[str, tuple[int, dt.datetime]]:
        """Return for each name that was claimed for after a moment how often, and when first; the newest name last."""
        found: dict[str, tuple[int, dt.datetime]] = {}
        with self._lock:
            for time, name in self._claimed:
                if time > moment:
                    count, first = found.pop(name, (0, time))
                    found[name] = (count + 1, first)
        return found

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalError(f"cannot write {self._path}: {error.strerror}") from error

    def _begin_next_file(self) -> None:
        """Go on in a new file, which begins with what is still needed of the full one."""
        last = self._attested
        snapshot = JournalSnapshot(
            seq=self._count,
            prev_sha256=self._head,
            first=self._first,
            sequence=last.sequence,
            digest=last.digest,
            run=last.run,
            void=last.void,
            claimed=tuple((rfc3339(time), principal) for time, principal in self._claimed),
            carried=tuple(line for lines in self._lines.values() for line in lines),
        )
        try:
            raw = begin_next(self._path, self._file_first, snapshot)
        except OSError:
            return  # no space, or a folder without links: the full file goes on, and the next line tries again
        os.close(self._fd)
        self._fd = self._opened()
        self._take_snapshot(snapshot, raw)

    def _remember(self, line: Entry, raw: bytes) -> None:
        """Keep what recovery and rates need; a run that ended is only in the files."""
        if isinstance(line, JournalSnapshot):
            self._take_snapshot(line, raw)
            return
        self._count += 1
        self._file_bytes += len(raw)
        self._head = hashlib.sha256(raw).hexdigest()
        self._first = self._head if line.seq == 0 else self._first
        self._fold(line)

    def _take_snapshot(self, snapshot: JournalSnapshot, raw: bytes) -> None:
        """Begin with what a snapshot carries; its own bytes do not count towards the next file."""
        self._histories, self._lines = {}, {}
        for line in snapshot.carried:
            self._fold(line)
        self._count, self._head, self._first = snapshot.seq + 1, hashlib.sha256(raw).hexdigest(), snapshot.first
        self._file_first, self._file_bytes = snapshot.seq, 0
        self._attested = LastAttested(snapshot.sequence, snapshot.digest, snapshot.run, snapshot.void)
        self._claimed = deque((parse_rfc3339(time), principal) for time, principal in snapshot.claimed)

    def _fold(self, line: JournalLine) -> None:
        before = self._histories.get(line.id)
        self._attested = _attested(self._attested, line, before)
        history = after(before, line)
        if history is None:
            self._histories.pop(line.id, None)
            self._lines.pop(line.id, None)
        else:
            self._histories[line.id] = history
            self._lines.setdefault(line.id, []).append(line)
        if line.event == "claimed":
            time = parse_rfc3339(line.time)
            self._claimed.append((time, str(line.detail.get("principal", "unsigned"))))
            while self._claimed and time - self._claimed[0][0] > _DAY:
                self._claimed.popleft()

    def _cut_torn_line(self) -> None:
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(self._path, whole)


def _attested(last: LastAttested, line: JournalLine, before: RunHistory | None) -> LastAttested:
    """Return where the chain is after a line; a run that was lost to another runner leaves its number void."""
    if line.event == "result_built" and ATTESTATION in line.detail:
        sequence, digest = line.detail["sequence"], line.detail[ATTESTATION]
        return replace(last, sequence=int(sequence or 0), digest=str(digest), run=line.id)
    if line.event == "fenced" and before is not None and before.stage < JournalStage.PUBLISHED:
        return replace(last, void=tuple(sorted({*last.void, *before.sequences})))
    return last


def verify_journal(path: Path) -> int:
    """Return how many lines the files of the journal have.

    Raises:
        JournalError: a line is broken, missing, repeated or altered; the message says which.
    """
    if not files_of(path):
        raise JournalError(f"there is no journal at {path}")
    return sum(1 for _ in read_files(path))


def read_lines(path: Path) -> Iterator[JournalLine]:
    """Yield the events of a journal nobody has to hold, oldest first, as far back as its files go.

    Raises:
        JournalError: the chain does not hold.
    """
    return (line for line, _ in read_files(path) if isinstance(line, JournalLine))


def append_line(path: Path, raw: bytes) -> None:
    """Write one line durably at the end of a file that its owner alone reads.

    Raises:
        JournalError: it could not be written; what it announces must not happen.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            append_whole(fd, raw + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror}", remedy="free space, restart") from error


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
