"""What confines a run: the interface, the plain case, and the choice.

Knows nothing about limits, logs or reports. A required sandbox that is not there is an error before anything starts.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.records import JobSpec, SandboxApplied

SETPRIV_PATHS: Final = ("/usr/bin/setpriv", "/bin/setpriv")


@dataclass(frozen=True)
class Wrapped:
    """A command line with its confinement around it, for the warden to start.

    Attributes:
        environment: what the outermost program gets; the command's own when nothing wraps it.
        wrappers: how many processes at its top belong to the confinement.
        pass_fds: descriptors it needs.
        stage: paths to be mounted elsewhere first, from which and where to, by the warden as root.
        status_fd: shows afterwards whether the confinement came to start the command; None when it cannot fail.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    wrappers: int = 0
    pass_fds: tuple[int, ...] = ()
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


@dataclass(frozen=True)
class Plain:
    """No sandbox; at most another user."""

    applied: SandboxApplied
    work: Path
    drop: tuple[str, ...] = ()

    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> AbstractContextManager[Wrapped]:
        """Return the command as it is."""
        return nullcontext(Wrapped((*self.drop, *argv), environment, self.work))


def nothing(reason: str, uid: int | None = None) -> SandboxApplied:
    """Return the record of a run that no sandbox confines, and why."""
    own = os.getuid() if uid is None else uid
    return SandboxApplied(kind="none", reason=reason, network=True, namespaces=(), filters=(), uid=own)


def group_of(uid: int) -> int:
    """Return a user's group; a user without an entry gets the group of its own number."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


def drop_to(uid: int | None) -> tuple[str, ...]:
    """Return the command line prefix that becomes another user; empty when none is asked for or we are that user.

    Raises:
        SandboxUnavailableError: we may not become that user.
    """
    if uid is None or uid == os.getuid():
        return ()
    program = next((path for path in SETPRIV_PATHS if Path(path).exists()), None)
    if os.getuid() != 0 or program is None:
        raise SandboxUnavailableError(
            f"the run must be user {uid}, and we are user {os.getuid()}"
            + ("" if program else " without setpriv (util-linux)"),
            remedy="run the host service as root, or set sandbox.uid in policy.toml to the service's own user",
        )
    return (program, f"--reuid={uid}", f"--regid={group_of(uid)}", "--clear-groups", "--no-new-privs", "--")


def give_to(directory: RunDirectory, uid: int | None) -> None:
    """Make the run's folders, with what is in them, the property of its user; nobody else has written there yet."""
    if uid is None or uid == os.getuid():
        return
    gid = group_of(uid)
    for top in (directory.work, directory.out, directory.home, directory.tmp):
        os.chown(top, uid, gid, follow_symlinks=False)
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                os.chown(Path(folder) / name, uid, gid, follow_symlinks=False)


def reachable(paths: Iterable[Path], uid: int) -> Path | None:
    """Return the first folder on the way to these paths that keeps a user out by its mode, or None."""
    for path in paths:
        for folder in reversed(path.parents):
            facts = folder.stat()
            shift = 6 if facts.st_uid == uid else 3 if facts.st_gid == group_of(uid) else 0
            if not facts.st_mode >> shift & 1:
                return folder
    return None


def plain(spec: JobSpec, directory: RunDirectory, reason: str) -> Plain:
    """Return the confinement of a run that gets no sandbox.

    Raises:
        SandboxUnavailableError: it must be another user and cannot.
    """
    uid = spec.sandbox.uid
    drop = drop_to(uid)
    if drop and uid is not None:
        closed = reachable([directory.work, Path(spec.commands[0].argv[0]).resolve()], uid)
        if closed is not None:
            raise SandboxUnavailableError(
                f"user {uid} cannot reach {closed}", remedy="put the data directory and the interpreter where it can"
            )
        give_to(directory, uid)
    return Plain(nothing(reason, uid), directory.work, drop)


def confine(spec: JobSpec, directory: RunDirectory, offered: SandboxApplied) -> Confinement:
    """Return what will confine a run.

    Args:
        spec: says what is wanted.
        directory: where it may write.
        offered: what this host's sandbox proved to be when it was tried.

    Raises:
        SandboxUnavailableError: the spec requires a sandbox, a user, a path or a device that this host cannot give.
    """
    mode = spec.sandbox.mode
    if mode == "off":
        return plain(spec, directory, "the job spec asks for none")
    if offered.kind == "none":
        if mode == "required":
            raise SandboxUnavailableError(
                f"this run needs a sandbox and the host has none: {offered.reason}", remedy="kakeya-runner doctor"
            )
        return plain(spec, directory, offered.reason or "the host has none")
    return enclosed(spec, directory)


def enclosed(spec: JobSpec, directory: RunDirectory) -> Confinement:
    """Return this platform's sandbox around a run, whether or not it has been tried.

    Raises:
        SandboxUnavailableError: there is none, or it cannot give what the spec asks for.
    """
    if sys.platform == "darwin":
        from bridge.executor.seatbelt import enclose
    else:
        from bridge.executor.bubble import enclose
    return enclose(spec, directory)
