"""Hold what one command is started with (environment, pipes, bounds), its state so far and its result."""

from __future__ import annotations

import contextlib
import enum
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge import strictjson
from bridge.executor.command.bounds import Stop
from bridge.executor.interface import RunDirectory
from bridge.executor.processes.tree import MARKER_NAME
from bridge.executor.sandbox.confinement import Wrapped
from bridge.records.jobspec import Command, JobSpec
from bridge.records.run import CommandResult
from bridge.records.workload import REPORT_FILE

PATH_DEFAULT: Final = "/usr/local/bin:/usr/bin:/bin"
LANG_DEFAULT: Final = "C.UTF-8"


# Read nothing that an earlier command could have compiled or left at home; /dev/null has no folders.
_OF_WORKLOADS: Final = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONPYCACHEPREFIX": "/dev/null/compiled",
}


def command_environment(
    spec: JobSpec, command: Command, directory: RunDirectory, marker: str, pipe_fd: int
) -> dict[str, str]:
    """Return the whole environment of a command of a run.

    Args:
        command: one that has a folder finds KAKEYA_OUT, KAKEYA_REPORT and KAKEYA_SEED of its repeat; one that computes
            it again finds no report.
        spec: its variables come first; the facts of the run below cannot be overridden.
        directory: gives HOME, TMPDIR and KAKEYA_OUT.
        marker: unique to the run; recognises its processes.
        pipe_fd: number of the sample pipe's write end in the command.
    """
    return {
        "PATH": PATH_DEFAULT,
        "LANG": LANG_DEFAULT,
        **{variable.name: variable.value for variable in spec.environment},
        "PWD": str(directory.work),
        "HOME": str(directory.home),
        "TMPDIR": str(directory.tmp),
        "KAKEYA_RUN_ID": spec.id,
        "KAKEYA_REQUEST_DIGEST": spec.request_digest,
        "KAKEYA_PRESET": spec.preset,
        "KAKEYA_PARAMS": strictjson.encode(dict(spec.params)).decode(),
        "KAKEYA_PROFILE": spec.profile,
        "KAKEYA_OUT": str(directory.out),
        "KAKEYA_SAMPLE_PIPE": str(pipe_fd),
        MARKER_NAME: marker,
        **({} if spec.workload is None else _OF_WORKLOADS),
        **_of_repeat(command, directory),
    }


def _of_repeat(command: Command, directory: RunDirectory) -> dict[str, str]:
    """Return what a repeat of a workload finds: the folder of its files, the name of its report, its seed."""
    if command.folder is None:
        return {}
    folder = directory.out / command.folder
    seed = {} if command.seed is None else {"KAKEYA_SEED": str(command.seed)}
    report = {} if command.confirms else {"KAKEYA_REPORT": str(folder / REPORT_FILE)}
    return {"KAKEYA_OUT": str(folder), **report, **seed}


def make_folder(command: Command, directory: RunDirectory) -> None:
    """Make the folder of a repeat, open to the run's user; the report directory above it is not open to others."""
    if command.folder is not None:
        open_folder(directory.out / command.folder)


def open_folder(folder: Path) -> None:
    """Have a folder at a path below the report directory, open to the run's user.

    What a command before left in its place goes: through a link we would open, and write to, what is the host's. No
    process of the run is there to put another one in.

    Args:
        folder: directly below the report directory, in which commands may write.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir()
    folder.chmod(0o777)


class Pipe:
    """Both ends of a pipe, closed at most once each."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)

    def close_read(self) -> None:
        """Close the reading end."""
        if self.read >= 0:
            os.close(self.read)
        self.read = -1

    def close_write(self) -> None:
        """Close the writing end."""
        if self.write >= 0:
            os.close(self.write)
        self.write = -1


def open_pipe(stack: contextlib.ExitStack) -> Pipe:
    """Return a pipe that is closed at the end of the block at the latest."""
    pipe = Pipe()
    stack.callback(pipe.close_write)
    stack.callback(pipe.close_read)
    return pipe


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


class Phase(enum.Enum):
    """How far a command is on the way to its end; it only goes forward."""

    RUNNING = enum.auto()
    TERM = enum.auto()  # its processes were asked to end
    KILL = enum.auto()  # the subreaper was told to kill them
    FORCED = enum.auto()  # it did not in time, and is killed over its head

    @property
    def order(self) -> bytes | None:
        """The line that tells the subreaper of it; None where there is nothing to do."""
        return {Phase.TERM: b"term\n", Phase.KILL: b"kill\n"}.get(self)


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
    phase: Phase = Phase.RUNNING


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
