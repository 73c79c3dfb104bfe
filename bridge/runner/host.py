"""Everything a runner keeps for as long as it lives: policy, memory, folders, and what it knows of its machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bridge.executor.interface import Executor
from bridge.presets import PolicyFacts, Preset
from bridge.runner.actions.announce import RunAnnouncement, nobody
from bridge.runner.authorisation.signers import Signers
from bridge.runner.machine.identity import CodeFacts, CodeWatch
from bridge.runner.policy.file import Policy
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.attestations import Attesting
from bridge.runner.state.journal import Journal
from bridge.runner.state.ledger import Ledger
from bridge.system.clock import Clock


@dataclass(frozen=True)
class StateFolder:
    """Where a runner of one name keeps its state; it is the runner's alone.

    Attributes:
        root: the folder.
        owner: the state folder whose pause file counts, where it is another runner's; None for its own.
    """

    root: Path
    owner: Path | None = None

    @property
    def lock(self) -> Path:
        """Held by the one process that may act under this name."""
        return self.root / "lock"

    @property
    def journal(self) -> Path:
        """What happened."""
        return self.root / "journal.jsonl"

    @property
    def ledger(self) -> Path:
        """Which requests were let in."""
        return self.root / "ledger.jsonl"

    @property
    def attempts(self) -> Path:
        """What ran how often."""
        return self.root / "attempts.jsonl"

    @property
    def reports(self) -> Path:
        """Reports of earlier attempts, by run id."""
        return self.root / "reports"

    @property
    def kept(self) -> Path:
        """What runs came to whose results are not built yet."""
        return self.root / "kept"

    @property
    def model_digests(self) -> Path:
        """Digests of model files by inode, size and time."""
        return self.root / "model-digests.json"

    @property
    def runs(self) -> Path:
        """Directories of runs that are going on."""
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
    def pause(self) -> Path:
        """While this file exists, nothing new is taken."""
        return (self.owner or self.root) / "pause"

    @property
    def drain(self) -> Path:
        """When this file exists, the runner ends after what it is running."""
        return self.root / "drain"

    def create(self) -> None:
        """Make the folders, readable by their owner alone."""
        for folder in (self.root, self.reports, self.kept, self.runs, self.spool, self.bus):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)


@dataclass(frozen=True)
class Host:
    """A runner's surroundings.

    Attributes:
        say: takes one line for people; the only way a runner talks.
        announce: tells the hosting site of a result, as far as the policy says so.
        stopping: set when the runner was asked to end now; what runs ends as ``interrupted``.
    """

    policy: Policy
    embedded: bool
    facts: PolicyFacts
    presets: Mapping[str, Preset]
    executor: Executor
    clock: Clock
    state: StateFolder
    journal: Journal
    attempts: Attempts
    attesting: Attesting
    code_watch: CodeWatch
    version: str
    say: Callable[[str], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    announce: Callable[[RunAnnouncement], None] = nobody

    @cached_property
    def signers(self) -> Signers:
        """The keys the owner trusts."""
        return Signers(self.policy)

    @cached_property
    def ledger(self) -> Ledger:
        """Which requests were let in; the caller holds the name lock."""
        return Ledger(self.state.ledger, self.clock)

    @property
    def name(self) -> str:
        """The runner's name on its bus."""
        return self.policy.name

    @property
    def code(self) -> CodeFacts:
        """The installed code as it is now."""
        return self.code_watch.now()
