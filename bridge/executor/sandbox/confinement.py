"""What confines a run: the interface, and the case without a sandbox.

Knows nothing about limits, logs or reports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.user import check_readable, closed_to, drop_to, give_to, job_uid, may_mount
from bridge.records.jobspec import JobSpec
from bridge.records.run import SandboxApplied, TrialOutcome


@dataclass(frozen=True)
class Wrapped:
    """A command line with its confinement around it, for the subreaper to start.

    Attributes:
        environment: what the outermost program gets; the command's own when nothing wraps it.
        wrappers: how many processes at its top belong to the confinement.
        pass_fds: descriptors it needs.
        cover: folders that the subreaper, as root, first covers with an empty one, for this command alone.
        stage: paths that it then mounts below them, from which and where to.
        status_fd: shows afterwards whether the confinement came to start the command; None when it cannot fail.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    wrappers: int = 0
    pass_fds: tuple[int, ...] = ()
    cover: tuple[str, ...] = ()
    stage: Mapping[str, str] = field(default_factory=dict)
    status_fd: int | None = None

    def set_up(self) -> bool:
        """Whether the confinement came to start the command."""
        # bubblewrap writes the exit code only when its setup was complete.
        return self.status_fd is None or b'"exit-code"' in os.pread(self.status_fd, 65536, 0)


class Confinement(Protocol):
    """What confines one run."""

    @property
    def applied(self) -> SandboxApplied:
        """What is applied, for the record."""
        ...

    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> AbstractContextManager[Wrapped]:
        """Wrap a command; its descriptors live until the end of the block."""
        ...


class Sandbox(Confinement, Protocol):
    """A confinement that can be tried before it is promised."""

    def tried(self, trial: TrialOutcome | None) -> Self:
        """Return the same sandbox with the outcome of its trial, for the record."""
        ...


@dataclass(frozen=True)
class Unconfined:
    """No sandbox; at most another user, for whom the way to what it needs is opened."""

    applied: SandboxApplied
    work: Path
    drop: tuple[str, ...] = ()
    cover: tuple[str, ...] = ()
    stage: Mapping[str, str] = field(default_factory=dict)

    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> AbstractContextManager[Wrapped]:
        """Return the command as it is.

        Raises:
            InfrastructureError: there is no such program; who becomes another user first could only exit with a code.
        """
        if self.drop and not os.access(argv[0], os.X_OK):
            raise InfrastructureError(f"cannot start {argv[0]!r}: No such file, or none that can be run")
        return nullcontext(Wrapped((*self.drop, *argv), environment, self.work, cover=self.cover, stage=self.stage))


def nothing(reason: str, uid: int | None = None) -> SandboxApplied:
    """Return the record of a run that no sandbox confines, and why."""
    own = os.getuid() if uid is None else uid
    return SandboxApplied(kind="none", reason=reason, network="host", namespaces=(), filters=(), uid=own)


def plain(spec: JobSpec, directory: RunDirectory, reason: str) -> Unconfined:
    """Return the confinement of a run that gets no sandbox.

    Raises:
        SandboxUnavailableError: it must be another user and cannot.
    """
    uid = job_uid(spec.sandbox.uid)
    drop = drop_to(uid)
    if not drop:
        return Unconfined(nothing(reason, uid), directory.work)
    check_readable(uid, spec)
    models = [path for path in spec.sandbox.read_only if Path(path).exists()]
    needed = allow_list(spec.programs, models).declared
    named = [*needed, *map(str, (directory.work, directory.out, directory.home, directory.tmp))]
    closed = closed_to(uid, dict.fromkeys((*named, *map(os.path.realpath, named))))
    if closed and not may_mount():
        shut = next(iter(closed.values()))
        raise SandboxUnavailableError(
            f"a run here is user {uid}, which cannot pass {shut}, and this process may not mount (CAP_SYS_ADMIN)",
            remedy="put interpreter and models where every user can go, or start the runner as an ordinary user",
        )
    give_to(directory, uid)
    cover = tuple(dict.fromkeys(closed.values()))
    return Unconfined(nothing(reason, uid), directory.work, drop, cover, {path: path for path in closed})
