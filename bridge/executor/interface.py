"""What an execution engine does: JobSpec -> Execution.

Knows nothing about requests, buses or verdicts. Other engines (Ray, Slurm) implement the same protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from bridge.records import (
    CommandResult,
    HostRecord,
    ImportedModule,
    JobSpec,
    LaunchRecord,
    LimitHit,
    OutputRecord,
    PeerRecord,
    SampleMark,
    SandboxApplied,
    Telemetry,
)

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


@dataclass(frozen=True)
class Hooks:
    """How the runner takes part in a running execution; all are called from the executor's own thread.

    Attributes:
        on_log: gets log bytes after redaction and cap, in order.
        on_started: gets (pid, start time, marker) of each command's process group leader, before it runs anything.
        should_stop: asked at least four times a second; a non-None answer ends the run with that ending.
    """

    on_log: Callable[[bytes], None]
    on_started: Callable[[int, float, str], None]
    should_stop: Callable[[], Literal["cancelled", "interrupted"] | None]


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
        wall_s: from the first command's start to the last one's end, on a steady clock.
        imported: where the first command's module came from, looked up in its confinement before it ran; None for a
            command that runs no module, or when there was no answer.
        peers: what answered the commands that ask a peer, in order.
        launches: of the commands that are launched in a series, in order.
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
    redactions: int
    wall_s: float
    imported: ImportedModule | None = None
    peers: tuple[PeerRecord, ...] = ()
    launches: tuple[LaunchRecord, ...] = ()


@dataclass(frozen=True)
class HostPaths:
    """Paths of this host that decide what the sandbox must hide and may show.

    Attributes:
        private: the runner's key, policy, state and home; no run reaches them.
        read_only: the policy's allow-list, with its model folders.
        devices: the policy's device nodes.
        interpreter: the Python of the policy; None for our own.
    """

    private: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    interpreter: str | None = None


@dataclass(frozen=True)
class RunKind:
    """What of a run decides its sandbox, beside its user: each kind is tried by itself.

    Attributes:
        name: the host's programs, code of a request, or code of a request that the host's programs ask and measure.
        network: whether it may reach a network.
        devices: whether it may open the policy's device nodes.
    """

    name: Literal["host", "request", "peer"] = "host"
    network: bool = False
    devices: bool = False


HOST_KIND: Final = RunKind()


class Executor(Protocol):
    """Executes job specs: one call runs all commands of one run."""

    def host(self) -> HostRecord:
        """Describe the machine; measured once, `unknown` where there is no source."""
        ...

    def sandbox(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> SandboxApplied:
        """Try the sandbox for real, once, and say what such a run as this user would get; None as in `SandboxSpec`."""
        ...

    def escapes(self, uid: int | None = None, kind: RunKind = HOST_KIND) -> tuple[Escape, ...]:
        """Return the ways out of the sandbox that were tried, and whether each was refused."""
        ...

    def execute(self, spec: JobSpec, directory: RunDirectory, hooks: Hooks, secrets: tuple[str, ...] = ()) -> Execution:
        """Run the commands of a job spec one after the other until one fails, a bound is hit or a stop is asked.

        Never raises for what the workload does; what a hook raises goes through. Every process it started is dead when
        it returns or raises.

        Raises:
            SandboxUnavailableError: the spec requires a sandbox this host cannot give; nothing was started.
        """
        ...

    def kill_leftovers(self, pid: int, started: float, marker: str) -> int:
        """Kill what an earlier runner left behind of one run; return how many processes were killed."""
        ...


@dataclass(frozen=True)
class Escape:
    """One way out of the sandbox, and whether the trial run was refused it."""

    what: str
    refused: bool
