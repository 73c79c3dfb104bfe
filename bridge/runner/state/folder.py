"""Where a runner of one name keeps its state, and that state with its durable file open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from bridge.errors import JournalError
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.attestations import Attesting
from bridge.runner.state.database import DamagedStateError, StateDatabase, set_aside
from bridge.runner.state.journal import Journal
from bridge.runner.state.ledger import Ledger
from bridge.system.clock import Clock

RUNS_TOO: Final = "runs"
"""What a stop file says to end the runs as well."""
NO_STATE_REMEDY: Final = "choose another folder with --state, or make this one writable"
"""What to do about a state folder that cannot be made or written."""


@dataclass(frozen=True)
class StateFolder:
    """Where a runner of one name keeps its state; it is the runner's alone.

    Attributes:
        root: the folder.
        owner: the state folder whose pause file counts, where it is another runner's; None for its own.
        lasts: whether it outlives its runner; what only a memory can tell is not told without one.
        identity_at: where the runner's key and the roots it remembers are; None: in this folder, with which they go.
    """

    root: Path
    owner: Path | None = None
    lasts: bool = True
    identity_at: Path | None = None

    @property
    def identity(self) -> Path:
        """Where the runner's key and the roots it remembers are: the one thing nobody can read back from the bus."""
        return self.identity_at or self.root

    @property
    def lock(self) -> Path:
        """Held by the one process that may act under this name."""
        return self.root / "lock"

    @property
    def database(self) -> Path:
        """What happened, which requests were let in, and what ran how often."""
        return self.root / "state.sqlite"

    @property
    def reports(self) -> Path:
        """Reports of earlier attempts, by run id."""
        return self.root / "reports"

    @property
    def late(self) -> Path:
        """What runs came to that another runner had ended by then."""
        return self.root / "late"

    @property
    def model_digests(self) -> Path:
        """Digests of model files by inode, size and time."""
        return self.root / "model-digests.json"

    @property
    def package_digests(self) -> Path:
        """Digests of the files of installed packages, alike."""
        return self.root / "package-digests.json"

    @property
    def runs(self) -> Path:
        """Folders of runs whose results are not built yet, by run id; the handles of the executor."""
        return self.root / "runs"

    @property
    def spool(self) -> Path:
        """Results that have not landed yet."""
        return self.root / "spool"

    @property
    def bus(self) -> Path:
        """The bus's own repository and caches."""
        return self.root / "bus"

    @property
    def log(self) -> Path:
        """The newest file of the runner's own log."""
        return self.root / "log.jsonl"

    @property
    def queue(self) -> Path:
        """What the runner last saw waiting, for its owner."""
        return self.root / "queue.json"

    @property
    def pause(self) -> Path:
        """While this file exists, nothing new is taken."""
        return (self.owner or self.root) / "pause"

    @property
    def root_contested(self) -> Path:
        """There while somebody keeps replacing the bus's root."""
        return self.root / "root-contested"

    @property
    def drain(self) -> Path:
        """When this file exists, the runner ends after what it is running."""
        return self.root / "drain"

    @property
    def stop(self) -> Path:
        """When this file exists, the runner ends now: runs go on without it, or end where it says `RUNS_TOO`."""
        return self.root / "stop"

    def create(self) -> None:
        """Make the folders, readable by their owner alone."""
        for folder in (self.root, self.reports, self.late, self.runs, self.spool, self.bus):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        if self.identity_at is not None:  # each on its own: what `parents` makes is open to others
            for folder in (self.identity_at.parent.parent, self.identity_at.parent, self.identity_at):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def old_files(self, before_unix_s: float) -> Iterator[Path]:
        """Yield reports of earlier attempts and what came too late, older than a moment; never the journal."""
        for path in (*sorted(self.reports.glob("*.json.gz")), *sorted(self.late.glob("*/*"))):
            if path.is_file() and path.stat().st_mtime < before_unix_s:
                yield path


@dataclass(frozen=True)
class OpenState:
    """A state folder with its durable file open; the process that opened it holds the folder's lock.

    Attributes:
        database: the file.
        journal: what happened.
        ledger: the requests that were let in.
        attempts: how often each configuration ran here.
        attesting: the runner's key and its chain of attestations.
        lost: why nothing is known of what was before, None where the file was there and whole.
    """

    folder: StateFolder
    database: StateDatabase
    journal: Journal
    ledger: Ledger
    attempts: Attempts
    attesting: Attesting
    clock: Clock
    lost: str | None = None

    @classmethod
    def open(cls, folder: StateFolder, name: str, clock: Clock) -> Self:
        """Open the state of the runner of this name; a damaged file is moved aside and another is begun.

        Raises:
            JournalError: the file cannot be read or written.
        """
        path = folder.database
        lost = None if path.exists() else f"there was no {path}"
        try:
            return cls._of(folder, name, clock, lost)
        except DamagedStateError as error:
            aside = set_aside(path, clock.now().timestamp())
            return cls._of(folder, name, clock, f"{error.message}: moved to {aside}")

    @classmethod
    def _of(cls, folder: StateFolder, name: str, clock: Clock, lost: str | None) -> Self:
        database = StateDatabase(folder.database)
        try:
            journal, ledger = Journal(database, clock), Ledger(database, clock)
        except JournalError:
            database.close()
            raise
        return cls(folder, database, journal, ledger, Attempts(database), Attesting(folder.identity, name), clock, lost)

    def close(self) -> None:
        """Close the file."""
        self.database.close()
