"""What confines a run: the interface, the plain case, and the choice.

Knows nothing about limits, logs or reports. A required sandbox that is not there is an error before anything starts.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.allowlist import allow_list
from bridge.records import JobSpec, SandboxApplied

SETPRIV_PATHS: Final = ("/usr/bin/setpriv", "/bin/setpriv")
# Nobody (65534) has files and processes of other services; no account has this number.
JOB_UID: Final = 65533
_CAP_SYS_ADMIN: Final = 21


@dataclass(frozen=True)
class Wrapped:
    """A command line with its confinement around it, for the warden to start.

    Attributes:
        environment: what the outermost program gets; the command's own when nothing wraps it.
        wrappers: how many processes at its top belong to the confinement.
        pass_fds: descriptors it needs.
        cover: folders that the warden, as root, first covers with an empty one, for this command alone.
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
    return SandboxApplied(kind="none", reason=reason, network=True, namespaces=(), filters=(), uid=own)


def job_uid(asked: int | None) -> int:
    """Return the user whose processes a run's are: the one asked for, else ours, never root.

    Raises:
        SandboxUnavailableError: root is asked for.
    """
    if asked == 0:
        raise SandboxUnavailableError(
            "a run is never root, and user 0 was asked for", remedy="name an ordinary user as sandbox.uid, or none"
        )
    own = os.getuid()
    return asked if asked is not None else JOB_UID if own == 0 else own


def group_of(uid: int) -> int:
    """Return a user's group; a user without an entry gets the group of its own number."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


def drop_to(uid: int) -> tuple[str, ...]:
    """Return the command line prefix that becomes a user; empty when we are that user.

    Raises:
        SandboxUnavailableError: we may not become that user.
    """
    if uid == os.getuid():
        return ()
    program = next((path for path in SETPRIV_PATHS if Path(path).exists()), None)
    if os.getuid() != 0 or program is None:
        raise SandboxUnavailableError(
            f"the run must be user {uid}, and we are user {os.getuid()}"
            + ("" if program else " without setpriv (util-linux)"),
            remedy="start the runner as an ordinary user and leave sandbox.uid out of policy.toml; as root, it needs "
            "setpriv",
        )
    return (program, f"--reuid={uid}", f"--regid={group_of(uid)}", "--clear-groups", "--no-new-privs", "--")


def give_to(directory: RunDirectory, uid: int) -> None:
    """Make the run's folders, with what is in them, the property of its user; nobody else has written there yet."""
    if uid == os.getuid():
        return
    gid = group_of(uid)
    for top in (directory.work, directory.out, directory.home, directory.tmp):
        os.chown(top, uid, gid, follow_symlinks=False)
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                os.chown(Path(folder) / name, uid, gid, follow_symlinks=False)


def closed_to(uid: int, paths: Iterable[str]) -> dict[str, str]:
    """Return the outermost folder that keeps a user out by its mode, for each of these paths that has one above it."""
    closed: dict[str, str] = {}
    for path in paths:
        for folder in reversed(Path(path).parents):
            if folder.exists() and not _mode_for(uid, folder) & 1:
                closed[path] = str(folder)
                break
    return closed


def _mode_for(uid: int, path: Path) -> int:
    """Return what a path's mode lets a user do: 4 read, 2 write, 1 run or enter."""
    facts = path.stat()
    shift = 6 if facts.st_uid == uid else 3 if facts.st_gid == group_of(uid) else 0
    return facts.st_mode >> shift & 7


def may_mount() -> bool:
    """Whether we may mount; root in a container often may not."""
    if sys.platform != "linux":
        return False
    found = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


def check_readable(uid: int, spec: JobSpec) -> None:
    """See that another user may read what a run's programs consist of.

    Raises:
        SandboxUnavailableError: a file or folder of them is shut to it by its mode.
    """
    for path in map(Path, allow_list([command.argv[0] for command in spec.commands], ()).declared):
        wanted = 5 if path.is_dir() else 4
        if path.exists() and _mode_for(uid, path) & wanted != wanted:
            raise SandboxUnavailableError(
                f"a run here is user {uid}, which may not read {path}",
                remedy=f"chmod -R o+rX {path}, or start the runner as the ordinary user whose it is",
            )


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
    needed = allow_list([command.argv[0] for command in spec.commands], models).declared
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
        from bridge.executor.sandbox.seatbelt import enclose
    else:
        from bridge.executor.sandbox.bubblewrap import enclose
    return enclose(spec, directory)
