"""Confine a run on macOS with a sandbox profile for `sandbox-exec`. Experimental: written without a Mac at hand.

The system calls the program deprecated and offers no replacement for command lines. The profile denies everything that
it does not name: reads as well as writes, and the network. Metal's compiler and GPU services are named, because a run
that finds no GPU falls back to the processor without a word. Knows nothing about processes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.network.ledger import Ledger
from bridge.executor.network.namespace import proxy_variables
from bridge.executor.network.proxy import NamesProxy
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.sandbox.user import drop_to, job_uid
from bridge.limits import TEXT_MAX_CHARS
from bridge.records.jobspec import JobSpec
from bridge.records.network import Network, describe_network
from bridge.records.run import SandboxApplied, TrialOutcome

PROGRAM: Final = "/usr/bin/sandbox-exec"
# Never /System as a whole: below it lies /System/Volumes/Data, under which every home has a second name.
_SYSTEM_FOLDERS: Final = (
    "/System/Library",
    "/System/Cryptexes",
    "/System/Volumes/Preboot/Cryptexes",
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
# Where Homebrew keeps what its Pythons load: OpenSSL, xz and SQLite are libraries of formulae of their own.
_HOMEBREW: Final = ("/opt/homebrew/Cellar", "/opt/homebrew/lib", "/opt/homebrew/opt")
# The system's programs, for code that runs git, a shell or a compiler: its git and cc are stubs that look for these.
_TOOL_FOLDERS: Final = (
    *("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/libexec", "/private/var/select"),
    *("/private/var/db/xcode_select_link", "/Library/Developer/CommandLineTools"),
    "/Applications/Xcode.app/Contents/Developer",
)
_TOOL_ALIASES: Final = ("/var/select", "/var/db/xcode_select_link")
_LINKS_MAX: Final = 32  # MAXSYMLINKS of Darwin's sys/param.h
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")
# What a process already has open, by its number, and the links by which shells and scripts name the first three.
_DESCRIPTORS: Final = "/dev/fd"
_STREAMS: Final = ("/dev/stdin", "/dev/stdout", "/dev/stderr")
_SERVICES: Final = (
    "com.apple.MTLCompilerService",
    "com.apple.logd",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
)
# The least with which Metal computes, as others measured by taking one away after the other: the first on macOS 26
# (agenc-core pull request 1488, nono pull request 635), the second by Anthropic's sandbox-runtime.
_GPU_CLIENTS: Final = ("AGXDeviceUserClient", "IOGPUDeviceUserClient")
# Python's shared memory, the locks of multiprocessing, and the segment in which libomp, which torch loads, registers
# itself; without it a program ends with "OMP: Error #179". The names that their sources give on macOS.
_SHARED_NAMES: Final = ("^/psm_", "^/mp-", "^/__KMP_REGISTERED_LIB_[0-9]+$")
_NETWORK_SERVICES: Final = ("com.apple.SystemConfiguration.configd", "com.apple.dnssd.service")
_TRUST_SERVICES: Final = ("com.apple.trustd", "com.apple.trustd.agent")  # Apple's TLS asks them about certificates


def quoted(text: str) -> str:
    """Return a string literal of the profile language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _rule(operations: str, *filters: str, action: str = "allow") -> str:
    return f"({action} {operations}\n  " + "\n  ".join(filters) + ")"


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


def spell(path: str, names: Callable[[str], Iterable[str]] = os.listdir) -> str:
    """Return a real path in the case in which each of its names is stored.

    On a volume that ignores case a path is found however it is written, and its rule still compares letter by letter.

    Args:
        path: an absolute path without links.
        names: returns the names in a folder; one that may not be listed keeps what was written.
    """
    place = "/"
    for part in Path(path).parts[1:]:
        try:
            stored = set(names(place))
        except OSError:
            stored = set()
        alike = [name for name in stored if name.casefold() == part.casefold()]
        place = os.path.join(place, part if part in stored or len(alike) != 1 else alike[0])
    return place


def shared_folders(*, tools: bool) -> tuple[str, ...]:
    """Return the folders outside of the system's own that programs load from.

    Args:
        tools: whether the system's programs are wanted too.
    """
    return (*_HOMEBREW, *(_TOOL_FOLDERS if tools else ()))


def _real(path: str) -> str:
    return spell(os.path.realpath(path))


def _place(folder: Path) -> str:
    """Return the real place of a run's own folder, also where a command before put a link there."""
    return str(Path(_real(str(folder.parent))) / folder.name)


def profile(
    readable: Iterable[str],
    writable: Iterable[str],
    *,
    network: Network,
    port: int | None = None,
    masked: Iterable[str] = (),
    links: Iterable[str] = (),
) -> str:
    """Return the profile's text.

    Args:
        readable: real paths that may be read and executed.
        writable: real paths of the run's folders.
        network: what may be reached.
        port: of the proxy on the loopback, where the network goes through one.
        masked: real paths below the readable ones that stay closed.
        links: the symbolic links that lead to any of them; what they are may be asked, not what they lead to.
    """
    readable, writable, links = list(readable), list(writable), sorted({*links, *_STREAMS})
    rules = [
        "(version 1)",
        "(deny default)",
        # These the kernel lets through in spite of the line above, unless they are named (Apple's own profiles,
        # Chromium issue 799149): what other processes are, mapping any file as code, the firmware's variables.
        "(deny file-map-executable process-info* nvram*)",
        "(allow process-fork)",
        _rule("signal process-info*", "(target same-sandbox)"),
        # All but the processes' own: kern.procargs2.PID shows the arguments and the environment of any process of the
        # same user, whatever `process-info*` says.
        "(allow sysctl-read)",
        '(deny sysctl-read (sysctl-name-prefix "kern.proc"))',
        # The dynamic linker reads the root itself: without this no program gets as far as its `main` on macOS 15.7
        # and later (mise issue 12263, ai-jail issue 77). What lies below the root stays closed.
        '(allow file-read* file-test-existence (literal "/"))',
        _rule(
            "file-read-metadata file-test-existence",
            *_ancestors([*_SYSTEM_FOLDERS, *readable, *writable, *links]),
            *_literals(links),
        ),
        _rule(
            "file-read* file-test-existence file-map-executable process-exec",
            *_subpaths([*_SYSTEM_FOLDERS, *readable]),
        ),
        _rule("file-read* file-test-existence file-write* file-ioctl", *_literals(_DEVICES)),
        _rule("file-read* file-test-existence file-write-data", *_subpaths([_DESCRIPTORS])),
        _rule("file-read* file-test-existence file-map-executable process-exec file-write*", *_subpaths(writable)),
        # The folders themselves stay: through a link in the place of one the supervisor would open, empty or give to
        # the next command what is the owner's.
        _rule("file-write-create file-write-unlink", *_literals(writable), action="deny"),
        _rule("ipc-posix-shm* ipc-posix-sem*", *(f'(ipc-posix-name-regex #"{name}")' for name in _SHARED_NAMES)),
        _rule("mach-lookup", *(f"(global-name {quoted(name)})" for name in _SERVICES)),
        _rule("iokit-open", *(f"(iokit-user-client-class {quoted(name)})" for name in _GPU_CLIENTS)),
        "(allow iokit-get-properties)",
    ]
    if port is not None:
        rules.append(f'(allow network-outbound (remote ip "localhost:{port}"))')
    if network == "host":
        rules += ["(allow network*)", "(allow system-socket)"]
        rules.append(_rule("mach-lookup", *(f"(global-name {quoted(name)})" for name in _NETWORK_SERVICES)))
        rules.append(_rule("file-read*", '(literal "/private/etc/resolv.conf")', '(literal "/private/etc/hosts")'))
    if network:
        rules.append(_rule("mach-lookup", *(f"(global-name {quoted(name)})" for name in _TRUST_SERVICES)))
        rules.append(_rule("file-read*", '(subpath "/private/etc/ssl")'))
    hidden = _subpaths(masked)
    if hidden:
        closed = "file-read* file-test-existence file-write* network-outbound"
        rules.append(_rule(closed, *hidden, action="deny"))
    return "\n".join(rules) + "\n"


@dataclass(frozen=True)
class Seatbelt:
    """Confines a run with a sandbox-exec profile."""

    spec: JobSpec
    directory: RunDirectory
    uid: int
    trial: TrialOutcome | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def tried(self, trial: TrialOutcome | None) -> Self:
        """Return the same sandbox with the outcome of its trial."""
        return replace(self, trial=trial)

    @property
    def applied(self) -> SandboxApplied:
        """What is applied; macOS has no namespaces."""
        network = self.spec.sandbox.network
        words = f"network {describe_network(network)}"[:TEXT_MAX_CHARS]
        filters = ("experimental", "deny default, reads included", words, "Metal services allowed")
        return SandboxApplied(
            kind="seatbelt",
            reason=None,
            network=network,
            namespaces=(),
            filters=filters,
            uid=self.uid,
            trial=self.trial,
            use=self.ledger.use() if self._is_proxied else None,
        )

    @property
    def _is_proxied(self) -> bool:
        return self.spec.sandbox.network not in (False, "host")

    @contextmanager
    def command(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[Wrapped]:
        """Wrap a command; the profile is a file beside the run's folders, where the run may not write."""
        path = self.directory.root / "profile.sb"
        with ExitStack() as stack:
            port = None
            if self._is_proxied:
                # The loopback is the whole machine's here: others may ask this proxy too, for the same names.
                listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                port = int(listener.getsockname()[1])
                stack.enter_context(NamesProxy(self.spec.sandbox.network, self.ledger).serve(listener))
            path.write_text(profile_of(self.spec, self.directory, port), encoding="utf-8")
            stack.callback(path.unlink, missing_ok=True)
            variables = {} if port is None else proxy_variables(port)
            yield Wrapped((PROGRAM, "-f", str(path), *argv), {**environment, **variables}, self.directory.work)


def enclose(spec: JobSpec, directory: RunDirectory) -> Seatbelt:
    """Return the sandbox of a run.

    Raises:
        SandboxUnavailableError: the program, the user or a path is not there.
    """
    if not Path(PROGRAM).exists():
        raise SandboxUnavailableError(f"{PROGRAM} is missing: this macOS has no sandbox for command lines")
    drop_to(job_uid(spec.sandbox.uid))
    profile_of(spec, directory)
    return Seatbelt(spec, directory, os.getuid())


def profile_of(spec: JobSpec, directory: RunDirectory, port: int | None = None) -> str:
    """Return the text of the profile around a run.

    Args:
        spec: what it may see.
        directory: where it may write.
        port: of its proxy, where it has one.

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
    folders = [_place(folder) for folder in (directory.work, directory.out, directory.home, directory.tmp)]
    tools = spec.code == "request" or spec.takes_programs_as_they_are
    readable = [*allow.declared, *(path for path in shared_folders(tools=tools) if Path(path).exists())]
    aliases = (*_ALIASES, *(_TOOL_ALIASES if tools else ()))
    lookups = (*_SYSTEM_FOLDERS, *aliases, *programs, *spec.sandbox.read_only, *readable, str(directory.root))
    # The kernel compares real paths: /tmp is a link to /private/tmp there. But it also asks for the metadata of each
    # link on the way to one, at the link's own place (ai-jail issue 124, omnigent issue 2049).
    return profile(
        [_real(path) for path in readable],
        folders,
        network=spec.sandbox.network,
        port=port,
        masked=[_real(path) for path in allow.masked],
        links=[node for path in lookups for node in link_nodes(path)],
    )
