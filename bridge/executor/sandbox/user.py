"""Choose the user of a run, never root; switch commands to it, and find the paths closed to it."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.allowlist import allow_list
from bridge.records.jobspec import JobSpec

SETPRIV_PATHS: Final = ("/usr/bin/setpriv", "/bin/setpriv")
# Nobody (65534) has files and processes of other services; no account has this number.
JOB_UID: Final = 65533
_CAP_SYS_ADMIN: Final = 21


def job_uid(uid: int | None) -> int:
    """Return the user whose processes a run's are: the one asked for, else ours, never root.

    Raises:
        SandboxUnavailableError: root is asked for.
    """
    if uid == 0:
        raise SandboxUnavailableError(
            "a run is never root, and user 0 was asked for", remedy="name an ordinary user as sandbox.uid, or none"
        )
    own = os.getuid()
    return uid if uid is not None else JOB_UID if own == 0 else own


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
    match = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> _CAP_SYS_ADMIN & 1)


def check_readable(uid: int, spec: JobSpec) -> None:
    """See that another user may read what a run's programs consist of.

    Raises:
        SandboxUnavailableError: a file or folder of them is shut to it by its mode.
    """
    for path in map(Path, allow_list(spec.programs, ()).declared):
        permissions = 5 if path.is_dir() else 4
        if path.exists() and _mode_for(uid, path) & permissions != permissions:
            raise SandboxUnavailableError(
                f"a run here is user {uid}, which may not read {path}",
                remedy=f"chmod -R o+rX {shlex.quote(str(path))}, or start the runner as the ordinary user whose it is",
            )
