"""The one file of a runner's state: what must be on the disk before what it announces happens.

An SQLite database: the journal, the requests that were let in, the attempts, and the place in the chain of signed
results. Everything in it can be lost: what counts is read back from what the runner signed on the bus. Knows no bus.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from bridge.errors import JournalError
from bridge.system.disk import is_local

SCHEMA_VERSION: Final = 2
_SCHEMA: Final = f"""
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY, previous TEXT NOT NULL, run TEXT NOT NULL, event TEXT NOT NULL, object TEXT,
    time TEXT NOT NULL, detail TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE chain (
    only INTEGER PRIMARY KEY CHECK (only = 0), name TEXT NOT NULL, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    run TEXT, void TEXT NOT NULL
);
CREATE TABLE ledger (
    bus TEXT NOT NULL, run TEXT NOT NULL, digest TEXT NOT NULL, claim TEXT NOT NULL, principal TEXT NOT NULL,
    time TEXT NOT NULL, PRIMARY KEY (bus, run)
) WITHOUT ROWID;
CREATE TABLE attempts (
    place INTEGER PRIMARY KEY, key TEXT NOT NULL, run TEXT NOT NULL, time TEXT NOT NULL, confirms TEXT,
    family TEXT, cell TEXT, version TEXT, UNIQUE (key, run)
);
CREATE TABLE queue (sittings TEXT PRIMARY KEY, not_before TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {SCHEMA_VERSION};
"""
_BESIDE: Final = ("", "-wal", "-shm", "-journal")
_BUSY_S: Final = 10.0
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA})
_REMEDY: Final = "free space, restart"


class Fact(StrEnum):
    """A single value that is on the disk under its name.

    Attributes:
        HISTORY_SINCE: since when attempts are counted in full.
        TAKES_SINCE: requests that are older are not taken: bus and state had both lost what had run by then.
        BEACON: the number of the beacon that was made last.
        STARTS: the nonces of the last starts.
    """

    HISTORY_SINCE = "history since"
    TAKES_SINCE = "takes since"
    BEACON = "beacon"
    STARTS = "starts"


class DamagedStateError(JournalError):
    """The file is no state that this program wrote whole."""


class StateDatabase:
    """The open file; one process writes it, under the runner's name lock, and any of its threads."""

    def __init__(self, path: Path, *, local: bool | None = None) -> None:
        """Open or create the file, readable by its owner alone.

        Args:
            path: the file.
            local: whether this machine has its disk itself, so that readers may look while it is written; None: look.

        Raises:
            DamagedStateError: it is damaged.
            JournalError: it cannot be opened or written.
        """
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            _sync_folder(path.parent)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {error.strerror}") from error
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._close = weakref.finalize(self, self._connection.close)
        try:
            self._begin(_shares_memory(path.parent) if local is None else local)
        except sqlite3.Error as error:
            self.close()
            raise _error(path, error) from error
        except DamagedStateError:
            self.close()
            raise

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Write one event: everything in the block is on the disk after it, or nothing is.

        Args:
            durable: whether to wait for the disk; what is not waited for reaches it with the next that is.

        Raises:
            JournalError: it could not be written; what it announces must not happen.
        """
        with self._lock:
            try:
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._undo()
                raise _error(self.path, error) from error
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Read what was written.

        Raises:
            JournalError: it cannot be read.
        """
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise _error(self.path, error) from error

    def fact(self, name: Fact) -> str | None:
        """Return a single fact by its name, None where it was never noted."""
        with self.read() as rows:
            row = rows.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def note(self, name: Fact, value: str, *, durable: bool = True) -> None:
        """Write a single fact down under a name.

        Args:
            name: of the fact.
            value: what it is now.
            durable: whether to wait for the disk.

        Raises:
            JournalError: it could not be written.
        """
        with self.write(durable=durable) as rows:
            rows.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def close(self) -> None:
        """Close the file, when the event that is being written is whole; a second time does nothing."""
        with self._lock:  # SQLite itself crashes where a connection is closed under a statement of another thread
            self._close()

    def _begin(self, local: bool) -> None:
        rows = self._connection
        if local:
            rows.execute("PRAGMA journal_mode = WAL")
        else:  # a shared memory file is not shared over a network
            rows.execute("PRAGMA locking_mode = EXCLUSIVE")
            rows.execute("PRAGMA journal_mode = TRUNCATE")
        rows.execute("PRAGMA synchronous = FULL")
        (version,) = rows.execute("PRAGMA user_version").fetchone()
        if version == 0:
            rows.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        elif version != SCHEMA_VERSION:
            raise DamagedStateError(
                f"{self.path} has schema {version}, this program writes {SCHEMA_VERSION}", remedy="upgrade kakeya"
            )
        (answer,) = rows.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise DamagedStateError(f"{self.path} is damaged: {answer}")

    def _undo(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile: SQLite has undone it
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Read a state file that another process may be writing, or that is a copy on a disk nobody writes.

    Raises:
        DamagedStateError: it is damaged.
        JournalError: there is none, or it cannot be read.
    """
    if not path.exists():
        raise JournalError(f"there is no state at {path}")
    try:
        rows = _opened(path, "mode=ro")
    except sqlite3.OperationalError:  # no folder to lock in, or a runner that locks others out
        try:
            rows = _opened(path, "immutable=1")
        except sqlite3.Error as error:
            raise _error(path, error) from error
    except sqlite3.Error as error:
        raise _error(path, error) from error
    try:
        yield rows
    except sqlite3.Error as error:
        raise _error(path, error) from error
    finally:
        rows.close()


def set_aside(path: Path, unix_s: float) -> Path:
    """Move a state file out of the way, what belongs to it included; return where it is now."""
    aside = path.with_name(f"{path.name}.unreadable-{int(unix_s)}")
    for suffix in _BESIDE:
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(aside.with_name(aside.name + suffix))
    return aside


def _opened(path: Path, how: str) -> sqlite3.Connection:
    rows = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=1.0)
    try:
        rows.execute("SELECT count(*) FROM chain").fetchone()
    except sqlite3.Error:
        rows.close()
        raise
    return rows


def _error(path: Path, error: sqlite3.Error) -> JournalError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED or "no such table" in str(error):
        return DamagedStateError(f"{path} is damaged: {error}")
    return JournalError(f"cannot write {path}: {error}", remedy=_REMEDY)


def _shares_memory(folder: Path) -> bool:
    """Return whether processes that open a file there share its index; a Mac's own disk is not listed anywhere."""
    return sys.platform == "darwin" or is_local(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
