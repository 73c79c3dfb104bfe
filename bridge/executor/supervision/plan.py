"""Hold the input of one command's supervision, its state so far and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.executor.process.pipe import Pipe
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.supervision.bounds import Stop
from bridge.records import CommandResult


@dataclass(frozen=True)
class CommandPlan:
    """One command, ready to start.

    Attributes:
        name, argv: as in the job spec, for the record.
        wrapped: what is started in fact; its wrapping processes get no TERM.
        rlimits: names of the resource module to bounds.
        marks: the sample pipe.
        marks_fd: number of its writing end, in the command too.
    """

    name: str
    argv: tuple[str, ...]
    wrapped: Wrapped
    rlimits: dict[str, int]
    marks: Pipe
    marks_fd: int


@dataclass
class Watched:
    """The state of a running command, as reported by the subreaper and sampled by the supervisor."""

    exit_code: int | None = None
    signal: int | None = None
    began: bool = False
    exited: bool = False
    clean: bool = False
    lost: bool = False
    failed: str | None = None
    killed_after: int = 0
    left: int = 0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    stop: Stop | None = None
    stop_at_s: float = 0.0
    phase: str = "running"  # running, term, kill, forced


@dataclass
class CommandEnd:
    """The result of supervising one command.

    Attributes:
        stop: what stopped it, or None when it ended by itself.
        failed: what kept the executor from its own work, or None.
        killed: who was killed by the host while the command ran, or None.
        began: whether the command ran at all.
    """

    result: CommandResult
    stop: Stop | None
    failed: str | None
    killed: str | None
    began: bool
    notes: list[str] = field(default_factory=list)
