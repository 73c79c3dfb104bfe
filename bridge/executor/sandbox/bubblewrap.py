"""Confine a run with bubblewrap: find it, gather what its options need, hold the descriptors it reads.

Knows nothing about processes; the options themselves are written in `bridge.executor.sandbox.bwrap_options`.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.network.ledger import Ledger
from bridge.executor.network.namespace import proxy_variables, serve_inside
from bridge.executor.network.proxy import NamesProxy
from bridge.executor.processes.tree import MARKER_NAME
from bridge.executor.sandbox import bwrap_options as bwrap
from bridge.executor.sandbox import seccomp
from bridge.executor.sandbox.allowlist import AllowList, allow_list
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.sandbox.landlock import INSIDE_ABI, SOURCE, kernel_abi, order_inside
from bridge.executor.sandbox.user import check_readable, drop_to, give_to, group_of, job_uid, may_mount
from bridge.limits import TEXT_MAX_CHARS
from bridge.records.jobspec import JobSpec
from bridge.records.run import SandboxApplied, TrialOutcome
from bridge.system.process import run

INSTALL: Final = "sudo apt-get install bubblewrap, or the package bubblewrap of your system"
_HELP_S: Final = 10.0
_STAGES: Final = ("/mnt", "/media", "/srv", "/opt")  # covered in a mount namespace of the run's own only
_SHM_SHARE: Final = 4  # /dev/shm may take this part of the memory bound


@functools.cache
def abilities() -> bwrap.Abilities:
    """Find bubblewrap and ask what it can do.

    Raises:
        SandboxUnavailableError: it is not installed or does not answer.
    """
    path = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")
    if path is None:
        raise SandboxUnavailableError("bubblewrap (bwrap) is not installed", remedy=INSTALL)
    done = run([path, "--help"], env={}, cwd="/", timeout_s=_HELP_S)
    if not done.ok:
        raise SandboxUnavailableError(f"bubblewrap does not answer: {done.describe()}")
    return bwrap.parse_abilities(path, done.stdout.decode("utf-8", "replace"))


def enclose(spec: JobSpec, directory: RunDirectory) -> Bubble:
    """Return the sandbox of a run.

    Raises:
        SandboxUnavailableError: bubblewrap, the user, a path or a device is not there.
    """
    able = abilities()
    uid = job_uid(spec.sandbox.uid)
    drop = drop_to(uid)
    if drop:
        check_readable(uid, spec)
        if not may_mount():
            raise SandboxUnavailableError(
                f"a run here is user {uid}, for whom this process would have to mount and may not (CAP_SYS_ADMIN)",
                remedy="start the runner as an ordinary user; it needs no root",
            )
    for device in spec.sandbox.devices:
        if not Path(device).exists() or not stat.S_ISCHR(Path(device).stat().st_mode):
            raise SandboxUnavailableError(
                f"the run may use {device!r}, which is no device of this host", remedy="check devices in policy.toml"
            )
    allow = allow_list(
        spec.programs,
        spec.sandbox.read_only,
        network=spec.sandbox.network,
        devices=bool(spec.sandbox.devices),
        tools=spec.code == "request" or spec.takes_programs_as_they_are,
    )
    give_to(directory, uid)
    return Bubble(spec, directory, able, allow, drop, uid)


@dataclass(frozen=True)
class SecondWall:
    """A command line that puts Landlock around itself inside the sandbox, with the descriptors it needs."""

    argv: tuple[str, ...]
    pass_fds: tuple[int, ...]
    status_fd: int


@dataclass(frozen=True)
class Bubble:
    """Confines a run with bubblewrap options made from its job spec."""

    spec: JobSpec
    directory: RunDirectory
    able: bwrap.Abilities
    allow: AllowList
    drop: tuple[str, ...]
    uid: int
    trial: TrialOutcome | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def tried(self, trial: TrialOutcome | None) -> Self:
        """Return the same sandbox with the outcome of its trial."""
        return replace(self, trial=trial)

    @property
    def applied(self) -> SandboxApplied:
        """What is applied."""
        network = self.spec.sandbox.network
        filters = ["no new privileges", "no capabilities", "own session"]
        calls = seccomp.refused_calls(platform.machine())
        filters.append(
            f"seccomp: {len(calls)} system calls refused, socket families unix, inet, inet6, netlink only"
            if calls
            else f"seccomp: none, no table for {platform.machine()}"
        )
        if self.able.disable_userns:
            filters.append("user namespaces disabled inside")
        filters.append(f"file system: empty but for {len(self.allow.declared)} declared and the system's library paths")
        filters += [f"{len(self.allow.masked)} sockets and credentials masked"] if self.allow.masked else []
        filters += self._describe_second_wall()
        filters += [f"device {path}" for path in self.spec.sandbox.devices]
        return SandboxApplied(
            kind="bwrap",
            reason=None,
            network=network,
            namespaces=bwrap.namespaces(network),
            filters=tuple(text[:TEXT_MAX_CHARS] for text in filters),
            uid=self.uid,
            trial=self.trial,
            use=self.ledger.use() if self._is_proxied else None,
        )

    @property
    def _is_proxied(self) -> bool:
        return self.spec.sandbox.network not in (False, "host")

    @contextmanager
    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[Wrapped]:
        """Wrap a command; its descriptors live until the end of the block."""
        with ExitStack() as stack:
            code = seccomp.program(platform.machine())
            gid = os.getgid() if not self.drop else group_of(self.uid)
            stage = stage_for(self._own_paths()) if self.drop else {}
            status = _memory(stack, b"")
            held_back = _open_pipe(stack) if self._is_proxied else None
            descriptors = bwrap.Descriptors(
                seccomp=None if code is None else _memory(stack, code),
                passwd=_memory(stack, bwrap.passwd(self.uid, gid, str(self.directory.home))),
                group=_memory(stack, bwrap.group(gid)),
                hosts=None if self.spec.sandbox.network == "host" else _memory(stack, bwrap.HOSTS),
                status=status,
                block=None if held_back is None else held_back[0],
            )
            scene = bwrap.Scene(
                abilities=self.able,
                allow=self.allow,
                directory=self.directory,
                environment={**environment, "TMPDIR": bwrap.TMPDIR, **(proxy_variables() if self._is_proxied else {})},
                network=self.spec.sandbox.network,
                devices=self.spec.sandbox.devices,
                shm_bytes=self.spec.limits.memory_bytes // _SHM_SHARE,
                staged=stage,
                covered=tuple(path for path in bwrap.COVERED if Path(path).exists()),
            )
            second = self._second_wall(stack, argv)
            text = b"".join(os.fsencode(option) + b"\0" for option in bwrap.options(scene, descriptors))
            args = _memory(stack, text)
            if held_back is not None:
                proxy = NamesProxy(self.spec.sandbox.network, self.ledger)
                stack.enter_context(serve_inside(proxy, status, held_back[1]))
            yield Wrapped(
                argv=(
                    *self.drop,
                    self.able.path,
                    "--args",
                    str(args),
                    "--",
                    *(argv if second is None else second.argv),
                ),
                environment={MARKER_NAME: environment[MARKER_NAME]},
                cwd=Path("/"),
                wrappers=bwrap.WRAPPERS,
                cover=tuple({str(Path(place).parent) for place in stage.values()}),
                pass_fds=(args, *descriptors.numbers(), *(() if second is None else second.pass_fds)),
                stage=stage,
                status_fd=status if second is None else second.status_fd,
            )

    def _has_second_wall(self, program: str) -> bool:
        """Whether Landlock is put inside: around code of a request, by the Python that runs it.

        Host code is measured from its start on, and another interpreter would start before it.
        """
        return self.spec.code == "request" and program in self.allow.pythons and kernel_abi() >= INSIDE_ABI

    def _describe_second_wall(self) -> list[str]:
        """Return the line of the record about the second wall, with the commands that it is around; none without."""
        around = [command.name for command in self.spec.commands if self._has_second_wall(command.argv[0])]
        if not around:
            return []
        which = "" if len(around) == len(self.spec.commands) else f", around {', '.join(around)} alone"
        return [f"Landlock ABI {kernel_abi()} inside{which}"]

    def _second_wall(self, stack: ExitStack, argv: tuple[str, ...]) -> SecondWall | None:
        if not self._has_second_wall(argv[0]):
            return None
        status = _memory(stack, b"")
        order = order_inside(self.allow, self.directory, self.spec.sandbox.devices, kernel_abi())
        described = _memory(stack, json.dumps({**order, "status": status, "argv": argv}).encode())
        return SecondWall((argv[0], "-I", "-S", "-c", SOURCE, str(described)), (described, status), status)

    def _own_paths(self) -> tuple[str, ...]:
        """Return the paths that the run's user may not be able to reach by name."""
        directory = self.directory
        folders = (directory.work, directory.out, directory.home, directory.tmp)
        return (*self.allow.declared, *map(str, folders))


def stage_for(paths: Sequence[str], places: Sequence[str] = _STAGES) -> dict[str, str]:
    """Return where root mounts each path, so that any user reaches it.

    Args:
        paths: what is to be mounted.
        places: folders of which one may be covered; one that holds a path to be mounted may not.

    Raises:
        SandboxUnavailableError: none of the places will do.
    """
    for place in places:
        if Path(place).is_dir() and not any(Path(path).is_relative_to(place) for path in paths):
            return {path: f"{place}/{index}" for index, path in enumerate(paths)}
    raise SandboxUnavailableError(
        f"a run as another user needs one of {', '.join(places)} with nothing in it that the run may read",
        remedy="move the models elsewhere, or start the runner as an ordinary user",
    )


def _open_pipe(stack: ExitStack) -> tuple[int, int]:
    """Return both ends of a pipe, which are closed at the end of the block."""
    ends = os.pipe()
    for end in ends:
        stack.callback(os.close, end)
    return ends


def _memory(stack: ExitStack, content: bytes) -> int:
    """Return a descriptor of an anonymous file with this content, read from its beginning."""
    descriptor = os.memfd_create("kakeya", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
