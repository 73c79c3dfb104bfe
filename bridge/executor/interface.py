"""What an execution engine does: JobSpec -> Execution.

Knows nothing about requests, buses or verdicts. What places runs on nodes implements the same protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from bridge.records.claim import RunProgress
from bridge.records.jobspec import JobSpec
from bridge.records.run import (
    CommandResult,
    HostRecord,
    ImportedModule,
    LimitHit,
    OutputRecord,
    PeerRecord,
    SampleMark,
    SandboxApplied,
    Telemetry,
)
from bridge.records.turns import LaunchRecord

Handle = Path
"""The folder of one run."""

Ending = Literal["exited", "timed_out", "cancelled", "interrupted", "revoked", "limit", "killed", "not_started"]


@dataclass(frozen=True)
class RunDirectory:
    """Where one run may write; all of it is new, empty and owned by the run's user.

    Attributes:
        root: parent of the others; nothing else is in it.
        work: current directory of the commands (a checkout for request code), without `.git`.
        out: KAKEYA_OUT.
        home, tmp: scratch HOME and TMPDIR.
    """

    root: Path
    work: Path
    out: Path
    home: Path
    tmp: Path


def _ignore_start(_pid: int, _started: float, _marker: str) -> None:
    return None


def _ignore_progress(_progress: RunProgress) -> None:
    return None


@dataclass(frozen=True)
class Hooks:
    """How somebody takes part in a running execution; all are called from the thread that follows it.

    Attributes:
        on_log: gets log bytes after redaction and cap, in order, from the beginning of the log.
        should_stop: asked at least four times a second; an ending ends the run with it, ``left`` stops following it.
        on_started: gets (pid, start time, marker) of whoever holds the run, or within the executor of each command's
            process group leader, before any of its log.
        on_progress: gets how far the run is, each time that changed; some of it may be skipped.
    """

    on_log: Callable[[bytes], None]
    should_stop: Callable[[], Literal["cancelled", "interrupted", "left"] | None]
    on_started: Callable[[int, float, str], None] = _ignore_start
    on_progress: Callable[[RunProgress], None] = _ignore_progress


@dataclass(frozen=True)
class Execution:
    """The result of executing a job spec, as measured by the executor.

    Attributes:
        ok: whether the executor did its own work, whatever the program did.
        ending: why it ended; `limit` names its bound in limits_hit; `killed` means by the host.
        program_exit: exit code of the last command that ran; 128 + n for signal n; None when none ran.
        message: one line for people when ok is False or the ending is not `exited`.
        log: the whole log kept, redacted and capped.
        reports: bytes of the declared and undeclared files under `out`, by relative POSIX path.
        redactions: how often a secret was masked in the log; None where its supervisor was killed, which alone counts.
        wall_s: from the first command's start to the last one's end, on a steady clock.
        imported: where the first command's module came from, looked up in its confinement before it ran; None for a
            command that runs no module, or when there was no answer.
        peers: what answered the commands that ask a peer, in order.
        launches: of the commands that are launched in a series, in order.
        host: the machine it ran on; None for a trial.
        ended: wall time of its end there; None for a trial.
        nonce: drawn when the run began, told to its commands as KAKEYA_NONCE; None where nothing began.
    """

    ok: bool
    ending: Ending
    program_exit: int | None
    message: str | None
    commands: tuple[CommandResult, ...]
    limits_hit: tuple[LimitHit, ...]
    sandbox: SandboxApplied
    telemetry: Telemetry | None
    sample_marks: tuple[SampleMark, ...]
    sample_marks_dropped: int
    outputs: tuple[OutputRecord, ...]
    reports: dict[str, bytes]
    log: bytes
    log_truncated_bytes: int
    redactions: int | None
    wall_s: float
    imported: ImportedModule | None = None
    peers: tuple[PeerRecord, ...] = ()
    launches: tuple[LaunchRecord, ...] = ()
    host: HostRecord | None = None
    ended: str | None = None
    nonce: str | None = None


@dataclass(frozen=True)
class HostPaths:
    """Paths of this host that decide what the sandbox must hide and may show.

    Attributes:
        private: the runner's key, policy, state and home; no run reaches them.
        read_only: the policy's allow-list, with its model folders.
        devices: the policy's device nodes.
        interpreter: the Python of the policy; None for our own.
        identities: path, device and inode of private paths, where a trial runs as a user who may not look them up.
    """

    private: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    interpreter: str | None = None
    identities: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class RunKind:
    """What of a run decides its sandbox, beside its user: each kind is tried by itself.

    Attributes:
        name: the host's programs, code of a request, or code of a request that the host's programs ask and measure.
        network: whether it reaches none, one through a proxy of its supervisor, or all that this host does.
        devices: whether it may open the policy's device nodes.
    """

    name: Literal["host", "request", "peer"] = "host"
    network: Literal["none", "proxy", "host"] = "none"
    devices: bool = False


HOST_KIND: Final = RunKind()


class LiveRun(Protocol):
    """A run that goes on, with or without this process."""

    def wait(self) -> Execution:
        """Hand on the log until the run has ended; return what it came to.

        Never raises for what the workload does; what a hook raises goes through. Every process of the run is dead when
        it returns.

        Raises:
            LeftRunningError: a hook said to leave it running.
            SandboxUnavailableError: the spec requires a sandbox this host cannot give; nothing was started.
            InfrastructureError: it could not be started for another reason.
        """
        ...

    def stop(self) -> None:
        """Ask for its end, as interrupted, without waiting for it."""
        ...


class Starting(AbstractContextManager["Starting"], Protocol):
    """A run that is prepared and of which nothing runs yet; leaving the block before `go` gives it up."""

    def go(self, hooks: Hooks) -> LiveRun:
        """Let its commands start.

        Raises:
            LeftRunningError: a hook said to leave it before it is known whether they do.
            InfrastructureError: what was to hold it is gone; nothing was started.
        """
        ...


class Executor(Protocol):
    """Executes job specs: one run is all commands of one spec, and outlives the process that started it.

    The handle of a run is its folder: whoever has the folder can follow the run, stop it, and learn what it came to.
    """

    def host(self) -> HostRecord:
        """Describe the machine; measured once, `unknown` where there is no source."""
        ...

    def sandbox(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxApplied:
        """Try the sandbox for real, once, and say what such a run as this user would get; None as in `SandboxSpec`."""
        ...

    def escapes(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> tuple[Escape, ...]:
        """Return the ways out of the sandbox that were tried, and whether each was refused."""
        ...

    def start(self, spec: JobSpec, directory: RunDirectory, handle: Handle, secrets: tuple[str, ...] = ()) -> Starting:
        """Prepare a run: its commands are run one after the other until one fails, a bound is hit or a stop is asked.

        Args:
            spec: what runs.
            directory: where it may write.
            handle: an existing or new folder for this run alone, outside of the directory.
            secrets: what must not appear in log or reports.

        Raises:
            SandboxUnavailableError: the spec requires a sandbox this host cannot give; nothing was started.
            InfrastructureError: nothing could be prepared.
        """
        ...

    def recover(self, handle: Handle, hooks: Hooks) -> Execution | LiveRun | None:
        """Return what a run came to, or the run if it goes on, or None if nothing of it ever ran and nothing will.

        Raises:
            LeftRunningError: it cannot be told yet; ask again.
            SandboxUnavailableError: it had been refused for that reason; nothing was started.
            InfrastructureError: it cannot be told, or the executor had refused to start it.
        """
        ...


@dataclass(frozen=True)
class Escape:
    """One way out of the sandbox, and whether the trial run was refused it."""

    what: str
    refused: bool
