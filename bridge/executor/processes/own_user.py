"""Become a user of the range that /etc/subuid gives this process's user: one number for each process that holds runs.

The program `newuidmap` may give a process the numbers of that range and no others. Such a user owns nothing on this
host, and can neither read what is the runner's nor signal it. See subuid(5), newuidmap(1), user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import re
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bridge.errors import SandboxUnavailableError
from bridge.executor.processes.subreaper import stage
from bridge.executor.processes.tree import processes_of
from bridge.system.process import run

CLONE_NEWUSER: Final = 0x10000000
MOST: Final = (
    64  # processes that hold runs at a time; folders that a killed one left are swept by the next of its number
)
WHOLE_RANGE_COUNT: Final = 65_536
_CONTAINERS_OWN: Final = 64  # at the end of a whole range: `nobody` (65534) and `nonroot` (65532) of its containers
_MAP_S: Final = 20.0
_LISTS: Final = ("/etc/subuid", "/etc/subgid")
_PROGRAMS: Final = ("newuidmap", "newgidmap")
_FOLDERS: Final = "/usr/bin:/usr/local/bin:/bin"


@dataclass(frozen=True)
class UserRange:
    """Users and groups that processes of this user may become, both from a first number on.

    Attributes:
        first_uid, first_gid: the first ones.
        count: how many of each.
    """

    first_uid: int
    first_gid: int
    count: int

    def user(self, number: int) -> tuple[int, int]:
        """Return a user and a group, counted from the end: from the beginning on they are those of its containers."""
        spared = _CONTAINERS_OWN if self.count >= WHOLE_RANGE_COUNT else 0
        place = self.count - 1 - spared - number
        return self.first_uid + place, self.first_gid + place


@dataclass(frozen=True)
class OwnUsers:
    """How processes become users of their own.

    Attributes:
        numbers: the range that they are of.
        locks: a folder of the runner's user, in which the numbers that are in use are locked.
        cover, places: what such a user needs below folders that are closed to it, as for `stage`.
    """

    numbers: UserRange
    locks: str
    cover: tuple[str, ...] = ()
    places: dict[str, str] = field(default_factory=dict)

    def dump(self) -> str:
        """Return it as one word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, word: str) -> OwnUsers:
        """Return what `dump` wrote."""
        value = json.loads(word)
        return cls(UserRange(**value["numbers"]), value["locks"], tuple(value["cover"]), value["places"])


def own_range() -> UserRange:
    """Return the range of this process's user.

    Raises:
        SandboxUnavailableError: there is none, or nothing that may hand it out.
    """
    if sys.platform != "linux" or os.getuid() == 0:
        raise SandboxUnavailableError(
            "sandbox.own_users is for a runner that is an ordinary user on Linux"
            + (", and this one is root" if os.getuid() == 0 else ""),
            remedy="leave sandbox.own_users out of policy.toml; a root runner's runs are another user anyway",
        )
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_FOLDERS) is None]
    if missing:
        raise SandboxUnavailableError(f"{missing[0]} is not installed", remedy="apt-get install uidmap")
    if re.search(r"^NoNewPrivs:\t1$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE):
        raise SandboxUnavailableError(
            "this process may gain no privileges, so newuidmap cannot give a run its user",
            remedy="start the runner without NoNewPrivileges, or name a service manager's socket as sandbox.socket",
        )
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    (first_uid, uids), (first_gid, gids) = (listed(Path(path), uid, name) for path in _LISTS)
    return UserRange(first_uid, first_gid, min(uids, gids))


def listed(path: Path, uid: int, name: str) -> tuple[int, int]:
    """Return the first number and the count of a user's first range in a file of subuid(5).

    Raises:
        SandboxUnavailableError: it lists none.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        owner, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if owner in {name, str(uid)} and first.isdecimal() and count.isdecimal() and int(count) > 0:
            return int(first), int(count)
    option = "uids" if path.name.endswith("uid") else "gids"
    raise SandboxUnavailableError(
        f"{path} lists no range for {name}",
        remedy=f"as root: usermod --add-sub{option} 200000-200063 {name}, with numbers that nobody else has",
    )


def become(users: OwnUsers) -> int:
    """Make this process, which has one thread, a user of the range that no other process is; return which.

    The lock on a number ends with the last process that holds runs as that user.

    Raises:
        SandboxUnavailableError: every number is taken, or the kernel or newuidmap does not let us.
    """
    uid, gid = users.numbers.user(take_number(Path(users.locks), users.numbers))
    _enter(uid, gid)
    try:
        if users.cover:
            stage(list(users.cover), users.places)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise SandboxUnavailableError(f"a process could not become user {uid}: {error.strerror}") from error
    return uid


def take_number(locks: Path, numbers: UserRange) -> int:
    """Lock the first number of a range whose user nobody is, for as long as this process and its forks live; return it.

    Who locked a number may be killed before the rest of its run has been cleared up: processes keep their user taken.

    Raises:
        SandboxUnavailableError: every number is taken.
    """
    count = min(numbers.count, MOST)
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(count):
        descriptor = os.open(locks / str(number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            if not processes_of(numbers.user(number)[0]):
                return number  # and leave the descriptor open
            os.close(descriptor)
    raise SandboxUnavailableError(
        f"all {count} users that runs may have here are taken",
        remedy="give the runner's user a larger range in /etc/subuid and /etc/subgid",
    )


def _enter(uid: int, gid: int) -> None:
    """Enter a user namespace as its root; in it a user and a group have the numbers that they have outside."""
    own, waiting, release = os.getpid(), *os.pipe()
    commands = [
        [str(shutil.which(program, path=_FOLDERS)), str(own), "0", str(ours), "1", str(its), str(its), "1"]
        for program, ours, its in zip(_PROGRAMS, (os.getuid(), os.getgid()), (uid, gid), strict=True)
    ]
    helper = os.fork()  # stays outside, from where the numbers are given
    if helper == 0:
        os.close(release)
        begun = os.read(waiting, 1) == b"e"
        os._exit(0 if begun and all(run(words, env={}, cwd="/", timeout_s=_MAP_S).ok for words in commands) else 1)
    os.close(waiting)
    failed = ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER)
    why = os.strerror(ctypes.get_errno())
    if not failed:
        os.write(release, b"e")
    os.close(release)
    _, status = os.waitpid(helper, 0)
    if failed:
        raise SandboxUnavailableError(f"the kernel gives this user no user namespace: {why}")
    if status != 0:
        raise SandboxUnavailableError(
            f"newuidmap did not give us user {uid} and group {gid}",
            remedy="see that /etc/subuid and /etc/subgid list the runner's user, and that newuidmap is set-uid root",
        )
