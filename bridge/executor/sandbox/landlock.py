"""Confine a run of the host's own code with Landlock and a filter of system calls, where namespaces are denied.

Weaker than bubblewrap, and said so wherever it is named: `NOT_HELD`. It has no namespace: what it may not read it still
sees to be there. In exchange it needs no right at all. The filter refuses every socket, because neither files nor ports
stand between a run and the sockets that its user's own services listen on.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox import landlock_stub as stub
from bridge.executor.sandbox import seccomp
from bridge.executor.sandbox.allowlist import AllowList, allow_list
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.sandbox.user import check_readable, closed_to, drop_to, give_to, job_uid, may_mount
from bridge.records.jobspec import JobSpec
from bridge.records.run import SandboxApplied, TrialOutcome

NEVER_HELD: Final = (
    "that files outside exist, how large, how old and whose they are and where links lead",
    "that processes outside exist, whose, in which session and group, how urgent, how busy and on which processors",
    "namespaces: it has those of the host",
)
NOT_HELD: Final = f"not held: {'; '.join(NEVER_HELD)}"
_VERSION: Final = 1  # LANDLOCK_CREATE_RULESET_VERSION
_SIGNALS_ABI: Final = 6  # from here on signals do not leave
_TRUNCATE_ABI: Final = 3
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_SYM = 1 << 10, 1 << 12
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ: Final = EXECUTE | READ_FILE | READ_DIR
OWN: Final = (
    READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Of /proc the machine and the program itself; those of others show what they were started as. What the program's own
# folder says of the host's sockets and mounts is left out, and so are its threads' folders, which say the same.
_ITSELF: Final = (
    *("auxv", "cgroup", "cmdline", "comm", "cpuset", "environ", "fd", "fdinfo", "io", "limits"),
    *("maps", "smaps", "smaps_rollup", "stat", "statm", "status"),
)
_FACTS: Final = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/version", "/proc/filesystems"),
    *("/proc/sys", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
    *(f"/proc/self/{name}" for name in _ITSELF),
)
INSIDE_ABI: Final = 2  # the first that lets a program move files between its folders
SOURCE: Final = Path(stub.__file__).read_text(encoding="utf-8")


@functools.cache
def kernel_abi() -> int:
    """Return the version of Landlock that the kernel speaks; 0 where it has none or is not asked to."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(stub.CREATE_RULESET, None, 0, _VERSION)))


def enclose(spec: JobSpec, directory: RunDirectory, abi: int | None = None) -> LandlockWall:
    """Return the wall around a run of the host's own code without a network.

    Args:
        spec: what it may see.
        directory: where it may write.
        abi: the version to use; None is the kernel's.

    Raises:
        SandboxUnavailableError: the run is of another kind, or this kernel or machine cannot give what it needs.
    """
    version, uid = kernel_abi() if abi is None else abi, job_uid(spec.sandbox.uid)
    _check_kind(spec)
    if version == 0:
        raise SandboxUnavailableError(
            "this kernel has no Landlock", remedy="allow user namespaces, or boot lsm=landlock,…"
        )
    if version < _SIGNALS_ABI and uid == os.getuid():
        raise SandboxUnavailableError(
            f"Landlock of ABI {version} does not keep a run from signalling this user's other processes",
            remedy=f"a kernel with ABI {_SIGNALS_ABI} (Linux 6.12), or sandbox.uid as root",
        )
    code = seccomp.program(platform.machine(), alone=True, truncate=version >= _TRUNCATE_ABI)
    if code is None:
        raise SandboxUnavailableError(f"there is no filter of system calls for {platform.machine()}")
    allow = allow_list(
        spec.programs,
        spec.sandbox.read_only,
        devices=bool(spec.sandbox.devices),
        tools=spec.takes_programs_as_they_are,
    )
    drop = drop_to(uid)
    closed: dict[str, str] = {}
    if drop:
        check_readable(uid, spec)
        needed = [*allow.declared, *allow_list([sys.executable], ()).declared, *map(str, _own(directory))]
        closed = closed_to(uid, dict.fromkeys((*needed, *map(os.path.realpath, needed))))
        if closed and not may_mount():
            shut = next(iter(closed.values()))
            raise SandboxUnavailableError(
                f"a run here is user {uid}, which cannot pass {shut}, and this process may not mount (CAP_SYS_ADMIN)",
                remedy="put interpreter and models where every user can go, or start the runner as an ordinary user",
            )
        give_to(directory, uid)
    return LandlockWall(
        spec, directory, allow, version, code, drop, tuple(dict.fromkeys(closed.values())), tuple(closed), uid
    )


def _check_kind(spec: JobSpec) -> None:
    """See that a run is one that this wall is for.

    Raises:
        SandboxUnavailableError: it brings code, or reaches a network.
    """
    if spec.code == "request":
        raise SandboxUnavailableError(
            "code of a request runs in namespaces of its own or not at all: Landlock alone is not enough for it",
            remedy="install bubblewrap and allow user namespaces",
        )
    if spec.sandbox.network:
        raise SandboxUnavailableError(
            "a run with a network needs a network namespace: Landlock alone has none",
            remedy="install bubblewrap and allow user namespaces",
        )


def _own(directory: RunDirectory) -> tuple[Path, ...]:
    return (directory.work, directory.out, directory.home, directory.tmp)


@dataclass(frozen=True)
class LandlockWall:
    """Confines a run with rules for paths and a filter of system calls."""

    spec: JobSpec
    directory: RunDirectory
    allow: AllowList
    abi: int
    filter: bytes
    drop: tuple[str, ...]
    cover: tuple[str, ...]
    closed: tuple[str, ...]
    uid: int
    trial: TrialOutcome | None = None

    def tried(self, trial: TrialOutcome | None) -> Self:
        """Return the same wall with the outcome of its trial."""
        return replace(self, trial=trial)

    @property
    def applied(self) -> SandboxApplied:
        """What is applied, with what it never holds."""
        filters = [
            "no new privileges",
            f"Landlock ABI {self.abi}: {len(self.rules())} paths",
            "seccomp: no sockets but pairs, no changed modes, owners or times",
            NOT_HELD,
        ]
        filters += [f"device {path}" for path in self.spec.sandbox.devices]
        return SandboxApplied(
            kind="landlock",
            reason=None,
            network=False,
            namespaces=(),
            filters=tuple(filters),
            uid=self.uid,
            trial=self.trial,
        )

    def rules(self) -> list[tuple[str, int]]:
        """Return each path with the rights to it and to all below it."""
        rules = [(path, READ) for path in (*self.allow.system, *_FACTS)]
        for path in self.allow.declared:
            rules += _without(
                path, {real for hidden in self.allow.masked for real in (hidden, os.path.realpath(hidden))}
            )
        rules += [(path, READ_FILE | WRITE_FILE) for path in _DEVICES]
        rules += [(path, READ_FILE | WRITE_FILE | IOCTL_DEV) for path in self.spec.sandbox.devices]
        return rules + [(str(folder), OWN) for folder in _own(self.directory)]

    @contextmanager
    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[Wrapped]:
        """Wrap a command; its descriptors live until the end of the block."""
        with ExitStack() as stack:
            status = _memory(stack, b"")
            order = {
                "abi": self.abi,
                "rules": self.rules(),
                "filter": self.filter.hex(),
                "status": status,
                "argv": argv,
            }
            described = _memory(stack, json.dumps(order).encode())
            yield Wrapped(
                argv=(*self.drop, sys.executable, "-I", "-S", "-c", SOURCE, str(described)),
                environment=environment,
                cwd=self.directory.work,
                cover=self.cover,
                stage={path: path for path in self.closed},
                pass_fds=(described, status),
                status_fd=status,
            )


def order_inside(allow: AllowList, directory: RunDirectory, devices: tuple[str, ...], abi: int) -> dict[str, object]:
    """Return what the script is told inside a sandbox of namespaces: the same paths, once more.

    Args:
        allow: what is mounted to be read.
        directory: where the run may write.
        devices: what it may open.
        abi: the version to use, 2 or later.
    """
    own = OWN | MAKE_SOCK
    rules = [(path, READ) for path in (*allow.system, *allow.declared, "/etc")]
    rules += [("/", READ_DIR), ("/proc", READ | WRITE_FILE), ("/sys", READ_FILE | READ_DIR)]
    rules += [(path, own) for path in ("/tmp", "/dev/shm", *map(str, _own(directory)))]  # noqa: S108 - its own
    rules += [(path, READ_FILE | READ_DIR | WRITE_FILE | IOCTL_DEV) for path in ("/dev", *devices)]
    return {"abi": abi, "rules": rules, "filter": ""}


def _without(path: str, hidden: set[str]) -> Iterator[tuple[str, int]]:
    """Yield rules for a path and all below it but what is hidden: rights that a folder has cannot be taken back."""
    if path in hidden:
        return
    if not any(Path(name).is_relative_to(path) for name in hidden):
        yield path, READ
        return
    yield path, READ_DIR
    for entry in sorted(Path(path).iterdir()):
        yield from _without(str(entry), hidden)


def _memory(stack: ExitStack, content: bytes) -> int:
    """Return a descriptor of an anonymous file with this content."""
    descriptor = os.memfd_create("kakeya", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    return descriptor
