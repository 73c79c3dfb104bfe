"""Write the bubblewrap command line of a run: an empty root with an allow-list mounted into it.

Pure: paths in, options out. Knows nothing about which paths are wanted or how processes are started.
The options travel through a descriptor (`--args`), so that no environment value shows in the process list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.allowlist import AllowList
from bridge.limits import MIB
from bridge.records.network import Network

TMP_BYTES: Final = 64 * MIB  # the sandbox's own /tmp
TMPDIR: Final = "/tmp/run"  # noqa: S108 - a run's folder, at a short path: a socket's name has 107 bytes (unix(7))
WRAPPERS: Final = 2  # bwrap's monitor and the first process of the new process namespace
# What of /proc is the whole machine's: it belongs to root and not to the process namespace that is mounted there.
_KERNEL: Final = (
    *("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/pressure", "/proc/fs", "/proc/mtrr"),
    *("/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/asound", "/proc/timer_stats", "/proc/latency_stats"),
)
# What shows the kernel's memory, addresses and keys, some of it to every user.
COVERED: Final = ("/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/keys", "/proc/key-users", "/proc/timer_list")
_NAMESPACES: Final = ("user", "pid", "ipc", "net", "uts", "cgroup", "mount")


@dataclass(frozen=True)
class Abilities:
    """What the installed bubblewrap can do.

    Attributes:
        path: the program.
        disable_userns: whether it can forbid further user namespaces (0.8 or later).
        sized_tmpfs: whether a tmpfs can be bounded (0.7 or later).
    """

    path: str
    disable_userns: bool
    sized_tmpfs: bool


@dataclass(frozen=True)
class Descriptors:
    """Numbers of the descriptors bubblewrap reads from, and of the one it reports to; None leaves the part out.

    Attributes:
        block: the program starts when a byte can be read from it.
    """

    seccomp: int | None
    passwd: int
    group: int
    hosts: int | None
    status: int
    block: int | None = None

    def numbers(self) -> tuple[int, ...]:
        """Return all that are in use."""
        every = (self.seccomp, self.passwd, self.group, self.hosts, self.status, self.block)
        return tuple(number for number in every if number is not None)


@dataclass(frozen=True)
class Scene:
    """Everything that decides the options.

    Attributes:
        staged: where to mount a path from, when not from itself.
        shm_bytes: bound of /dev/shm.
        covered: files of /proc that are closed, which exist on this host.
    """

    abilities: Abilities
    allow: AllowList
    directory: RunDirectory
    environment: Mapping[str, str]
    network: Network
    devices: tuple[str, ...]
    shm_bytes: int
    staged: Mapping[str, str] = field(default_factory=dict)
    covered: tuple[str, ...] = ()


def namespaces(network: Network) -> tuple[str, ...]:
    """Return the namespaces a run gets of its own."""
    return tuple(name for name in _NAMESPACES if not (network == "host" and name == "net"))


def passwd(uid: int, gid: int, home: str) -> bytes:
    """Return the only line of the sandbox's /etc/passwd."""
    return f"run:x:{uid}:{gid}:run:{home}:/usr/sbin/nologin\n".encode()


def group(gid: int) -> bytes:
    """Return the only line of the sandbox's /etc/group."""
    return f"run:x:{gid}:\n".encode()


_HOSTNAME: Final = "sandbox"
HOSTS: Final = f"127.0.0.1 localhost {_HOSTNAME}\n::1 localhost\n".encode()


def options(scene: Scene, descriptors: Descriptors) -> list[str]:
    """Return the options, to be written NUL-separated into the `args` descriptor."""
    given = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    given += [] if scene.network == "host" else ["--unshare-net"]
    given += ["--disable-userns"] if scene.abilities.disable_userns else []
    given += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", _HOSTNAME]
    given += ["--json-status-fd", str(descriptors.status)]
    if descriptors.block is not None:
        given += ["--block-fd", str(descriptors.block)]
    if descriptors.seccomp is not None:
        given += ["--seccomp", str(descriptors.seccomp)]
    given += _file_system(scene, descriptors)
    given.append("--clearenv")
    for name, value in sorted(scene.environment.items()):
        given += ["--setenv", name, value]
    return [*given, "--chdir", str(scene.directory.work)]


def _file_system(scene: Scene, descriptors: Descriptors) -> list[str]:
    """Return the mounts, outer ones first; nothing but the run's four folders, /tmp and /dev/shm can be written."""
    given: list[str] = []
    for path, target in sorted(scene.allow.links.items()):
        given += ["--symlink", target, path]
    given += ["--proc", "/proc"]
    for path in _KERNEL:
        given += ["--ro-bind-try", path, path]
    for path in scene.covered:
        given += ["--ro-bind", "/dev/null", path]
    given += ["--dev", "/dev"]
    given += _tmpfs(scene, "/dev/shm", scene.shm_bytes) + _tmpfs(scene, "/tmp", TMP_BYTES)  # noqa: S108 - its own
    for path in (*scene.allow.system, *scene.allow.declared):
        given += ["--ro-bind", scene.staged.get(path, path), path]
    for path, is_folder in scene.allow.masked.items():
        given += ["--tmpfs", path, "--remount-ro", path] if is_folder else ["--dev-bind", "/dev/null", path]
    for number, path in ((descriptors.passwd, "/etc/passwd"), (descriptors.group, "/etc/group")):
        given += ["--ro-bind-data", str(number), path]
    if descriptors.hosts is not None:
        given += ["--ro-bind-data", str(descriptors.hosts), "/etc/hosts"]
    for device in scene.devices:
        given += ["--dev-bind", device, device]
    directory = scene.directory
    for folder in map(str, (directory.work, directory.out, directory.home, directory.tmp)):
        place = TMPDIR if folder == str(directory.tmp) else folder
        given += ["--bind", scene.staged.get(folder, folder), place]
    return [*given, "--remount-ro", "/dev", "--remount-ro", "/"]


def _tmpfs(scene: Scene, path: str, size_bytes: int) -> list[str]:
    bounded = ["--size", str(size_bytes)] if scene.abilities.sized_tmpfs else []
    return [*bounded, "--tmpfs", path]


def parse_abilities(path: str, help_text: str) -> Abilities:
    """Return what a bubblewrap can do, from its own help."""
    return Abilities(path, disable_userns="--disable-userns" in help_text, sized_tmpfs="--size BYTES" in help_text)
