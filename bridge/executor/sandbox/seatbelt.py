"""Confine a run on macOS with a sandbox profile for `sandbox-exec`. Experimental: written without a Mac at hand.

The system calls the program deprecated and offers no replacement for command lines. The profile denies everything that
it does not name: reads as well as writes, and the network. Metal's compiler and GPU services are named, because a run
that finds no GPU falls back to the processor without a word. Knows nothing about processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.sandbox.user import drop_to, job_uid
from bridge.records.jobspec import JobSpec
from bridge.records.run import SandboxApplied, TrialOutcome

PROGRAM: Final = "/usr/bin/sandbox-exec"
_SYSTEM_FOLDERS: Final = (
    "/System",
    "/usr/lib",
    "/usr/share",
    "/Library/Apple",
    "/Library/Preferences/Logging",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/etc/localtime",
)
# By these names programs come to the folders above: on macOS they are links.
_ALIASES: Final = ("/etc/localtime", "/tmp", "/var/db/timezone")  # noqa: S108 - looked up, never written
_LINKS_MAX: Final = 32  # MAXSYMLINKS of Darwin's sys/param.h
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")
_SERVICES: Final = (
    "com.apple.MTLCompilerService",
    "com.apple.gpumemd.source",
    "com.apple.logd",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
)
_GPU_CLIENTS: Final = (
    "AGXDeviceUserClient",
    "AGXSharedUserClient",
    "IOSurfaceRootUserClient",
    "IOAccelerationUserClient",
)
# Python's shared memory, the locks of multiprocessing, and the segment in which libomp, which torch loads, registers
# itself; without it a program ends with "OMP: Error #179". The names that their sources give on macOS.
_SHARED_NAMES: Final = ("^/psm_", "^/mp-", "^/__KMP_REGISTERED_LIB_[0-9]+$")
_NETWORK_SERVICES: Final = ("com.apple.SystemConfiguration.configd", "com.apple.trustd", "com.apple.dnssd.service")


def quoted(text: str) -> str:
    """Return a string literal of the profile language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _rule(actions: str, *filters: str) -> str:
    return f"(allow {actions}\n  " + "\n  ".join(filters) + ")"


def _subpaths(paths: Iterable[str]) -> list[str]:
    return [f"(subpath {quoted(path)})" for path in paths]


def _literals(paths: Iterable[str]) -> list[str]:
    return [f"(literal {quoted(path)})" for path in paths]


def _ancestors(paths: Iterable[str]) -> list[str]:
    """Return the folders above these paths, whose mere existence a path lookup asks for."""
    return _literals(sorted({str(parent) for path in paths for parent in Path(path).parents}))


def link_nodes(path: str) -> Iterator[str]:
    """Yield each symbolic link that a lookup of an absolute path crosses, in that order, by its own real place.

    Links in the middle of a path count, and so do the links that a link leads through. A circle ends after as many as
    the kernel follows; what this user may not look up is no link.
    """
    place, pending, crossed = Path("/"), [*reversed(Path(path).parts[1:])], 0
    while pending:
        part = pending.pop()
        node = place.parent if part == ".." else place / part
        if not os.path.islink(node):  # noqa: PTH114 - pathlib raises where this user may not look
            place = node
            continue
        crossed += 1
        if crossed > _LINKS_MAX:
            return
        yield str(node)
        target = node.readlink()
        place = Path("/") if target.is_absolute() else place
        pending += reversed([part for part in target.parts if part != "/"])


def profile(
    readable: Iterable[str],
    writable: Iterable[str],
    *,
    network: bool,
    masked: Iterable[str] = (),
    links: Iterable[str] = (),
) -> str:
    """Return the profile's text.

    Args:
        readable: real paths that may be read and executed.
        writable: real paths of the run's folders.
        network: whether connections are allowed.
        masked: real paths below the readable ones that stay closed.
        links: the symbolic links that lead to any of them; what they are may be asked, not what they lead to.
    """
    readable, writable, links = list(readable), list(writable), sorted(set(links))
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        _rule("signal process-info*", "(target same-sandbox)"),
        "(allow sysctl-read)",
        # The dynamic linker reads the root itself: without this no program gets as far as its `main` on macOS 15.7
        # and later (mise issue 12263, ai-jail issue 77). What lies below the root stays closed.
        '(allow file-read* file-test-existence (literal "/"))',
        _rule("file-read-metadata", *_ancestors([*_SYSTEM_FOLDERS, *readable, *writable, *links]), *_literals(links)),
        _rule("file-read* file-map-executable process-exec", *_subpaths([*_SYSTEM_FOLDERS, *readable])),
        _rule("file-read* file-write* file-ioctl", *_literals(_DEVICES)),
        _rule("file-read* file-write*", *_subpaths(writable)),
        _rule("ipc-posix-shm* ipc-posix-sem*", *(f'(ipc-posix-name-regex #"{name}")' for name in _SHARED_NAMES)),
        _rule("mach-lookup", *(f"(global-name {quoted(name)})" for name in _SERVICES)),
        _rule("iokit-open", *(f"(iokit-user-client-class {quoted(name)})" for name in _GPU_CLIENTS)),
        "(allow iokit-get-properties)",
    ]
    if network:
        rules += ["(allow network*)", "(allow system-socket)"]
        rules.append(_rule("mach-lookup", *(f"(global-name {quoted(name)})" for name in _NETWORK_SERVICES)))
        rules.append(_rule("file-read*", '(literal "/private/etc/resolv.conf")', '(literal "/private/etc/hosts")'))
    hidden = _subpaths(masked)
    if hidden:
        rules.append(_rule("file-read* file-write* network-outbound", *hidden).replace("(allow", "(deny", 1))
    return "\n".join(rules) + "\n"


@dataclass(frozen=True)
class Seatbelt:
    """Confines a run with a sandbox-exec profile."""

    text: str
    directory: RunDirectory
    network: bool
    uid: int
    trial: TrialOutcome | None = None

    def tried(self, trial: TrialOutcome | None) -> Self:
        """Return the same sandbox with the outcome of its trial."""
        return replace(self, trial=trial)

    @property
    def applied(self) -> SandboxApplied:
        """What is applied; macOS has no namespaces."""
        network = "network allowed" if self.network else "no network"
        filters = ("experimental", "deny default, reads included", network, "Metal services allowed")
        return SandboxApplied(
            kind="seatbelt",
            reason=None,
            network=self.network,
            namespaces=(),
            filters=filters,
            uid=self.uid,
            trial=self.trial,
        )

    @contextmanager
    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[Wrapped]:
        """Wrap a command; the profile is a file beside the run's folders, where the run may not write."""
        path = self.directory.root / "profile.sb"
        path.write_text(self.text, encoding="utf-8")
        try:
            yield Wrapped((PROGRAM, "-f", str(path), *argv), environment, self.directory.work)
        finally:
            path.unlink(missing_ok=True)


def enclose(spec: JobSpec, directory: RunDirectory) -> Seatbelt:
    """Return the sandbox of a run.

    Raises:
        SandboxUnavailableError: the program, the user or a path is not there.
    """
    if not Path(PROGRAM).exists():
        raise SandboxUnavailableError(f"{PROGRAM} is missing: this macOS has no sandbox for command lines")
    drop_to(job_uid(spec.sandbox.uid))
    return Seatbelt(profile_of(spec, directory), directory, spec.sandbox.network, os.getuid())


def profile_of(spec: JobSpec, directory: RunDirectory) -> str:
    """Return the text of the profile around a run.

    Raises:
        SandboxUnavailableError: a declared path does not exist.
    """
    programs = spec.programs
    allow = allow_list(
        programs,
        spec.sandbox.read_only,
        network=spec.sandbox.network,
        devices=False,
        platform_paths=False,
    )
    folders = [str(folder) for folder in (directory.work, directory.out, directory.home, directory.tmp)]
    lookups = (*_SYSTEM_FOLDERS, *_ALIASES, *programs, *spec.sandbox.read_only, *allow.declared, *folders)
    # The kernel compares real paths: /tmp is a link to /private/tmp there. But it also asks for the metadata of each
    # link on the way to one, at the link's own place (ai-jail issue 124, omnigent issue 2049).
    return profile(
        [os.path.realpath(path) for path in allow.declared],
        [os.path.realpath(folder) for folder in folders],
        network=spec.sandbox.network,
        masked=[os.path.realpath(path) for path in allow.masked],
        links=[node for path in lookups for node in link_nodes(path)],
    )
