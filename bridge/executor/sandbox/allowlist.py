"""Which paths of this machine a sandboxed run may see: an allow-list, never the root with holes in it.

Knows nothing about the program that enforces it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.sandbox.interpreter import Interpreter, ask
from bridge.executor.sandbox.private_paths import masked_below
from bridge.records.network import Network

# Shared libraries, their linker's cache, time zones: read by every interpreter, the same for everybody here.
_SYSTEM_FOLDERS: Final = ("/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/local/lib", "/usr/share/zoneinfo")
_SYSTEM_LINKS: Final = ("/lib", "/lib64", "/lib32")
# The system's programs and their data: for code that runs git, a shell or a compiler (MLX calls one), as tests do.
_TOOL_FOLDERS: Final = ("/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/share", "/usr/include", "/usr/local/include")
_TOOL_LINKS: Final = ("/bin", "/sbin")
_SYSTEM_FILES: Final = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/alternatives",
)
_RESOLVER_FILES: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
_CERTIFICATES: Final = (
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
)
# Processor and memory layout, which thread pools size themselves by.
_HARDWARE: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_DEVICE_HARDWARE: Final = ("/sys/devices", "/sys/bus/pci", "/sys/class/drm", "/sys/module/nvidia")
_DEVICE_LIBRARIES: Final = ("/usr/local/cuda", "/usr/local/nvidia")
_WHOLE_SYSTEM: Final = ("/", "/usr", "/usr/local", "/bin", "/opt")
_SITE_FOLDERS: Final = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class AllowList:
    """Absolute paths, readable at the same place inside.

    Attributes:
        links: symbolic links to make, by path.
        system: folders and files everybody on this machine may read.
        declared: the rest: interpreter, packages, models.
        masked: sockets and credentials below them, to be covered; True for a folder.
        pythons: those of the programs that answered as a Python does; a name alone makes none.
    """

    links: dict[str, str]
    system: tuple[str, ...]
    declared: tuple[str, ...]
    masked: dict[str, bool] = field(default_factory=dict)
    pythons: frozenset[str] = frozenset()


def allow_list(
    programs: Iterable[str],
    read_only: Iterable[str],
    *,
    network: Network = False,
    devices: bool = False,
    tools: bool = False,
    platform_paths: bool = True,
) -> AllowList:
    """Return what a run of these programs may see.

    Args:
        programs: absolute paths of the commands' programs.
        read_only: the job spec's own list.
        network: any but none needs certificates, and the host's needs its resolver too.
        devices: whether a device is passed in, whose driver looks around in /sys.
        tools: whether the system's programs are wanted.
        platform_paths: False leaves out the Linux paths.

    Raises:
        SandboxUnavailableError: a declared path does not exist, or holds too much to look for credentials.
    """
    read_only = tuple(read_only)
    interpreters = {program: _interpreter(program) for program in programs}
    pythons = frozenset(program for program, interpreter in interpreters.items() if interpreter is not None)
    paths = [path for program, interpreter in interpreters.items() for path in _program(program, interpreter)]
    needed = tuple(paths)
    for path in read_only:
        if not Path(path).exists():
            raise SandboxUnavailableError(
                f"the run may read {path!r}, which does not exist",
                remedy="check model_roots and read_only in policy.toml",
            )
        paths.append(path)
    masked = masked_below(read_only, needed)
    if not platform_paths:
        return AllowList({}, (), _outermost(paths), masked, pythons)
    system = [*_SYSTEM_FOLDERS, *_SYSTEM_FILES, *_HARDWARE]
    system += _CERTIFICATES if network else ()
    system += _RESOLVER_FILES if network == "host" else ()
    system += (*_DEVICE_HARDWARE, *_DEVICE_LIBRARIES) if devices else ()
    system += _TOOL_FOLDERS if tools else ()
    places = (*_SYSTEM_LINKS, *(_TOOL_LINKS if tools else ()))
    links = {path: str(Path(path).readlink()) for path in places if Path(path).is_symlink()}
    system += [path for path in places if Path(path).is_dir() and path not in links]
    present = _outermost(path for path in system if Path(path).exists())
    covered = [path for path in _outermost(paths) if not _below(path, (*present, *links))]
    return AllowList(links, present, tuple(covered), masked, pythons)


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths without those below another of them, shortest first."""
    outermost: list[str] = []
    for path in sorted(set(paths), key=lambda text: (len(Path(text).parts), text)):
        if not any(Path(path).is_relative_to(outer) for outer in outermost):
            outermost.append(path)
    return tuple(outermost)


def _program(program: str, interpreter: Interpreter | None) -> list[str]:
    """Return the paths a program needs; for an interpreter everything it can import."""
    paths = _link_chain(program)
    if (behind := _script_interpreter(paths[-1])) is not None:
        # A script may still stand for a Python, as the shims of version managers do.
        paths += _program(behind, _interpreter(behind))
    if interpreter is None:
        return paths  # the system libraries have to do
    for prefix in interpreter.prefixes:
        if prefix not in _WHOLE_SYSTEM:
            paths.append(prefix)
    for path in interpreter.path:
        if not _below(path, paths):
            # Whatever a .pth file added: a project, its `src`, somebody's home.
            paths += _packages_in(Path(path)) if _is_project(path) else [path]
    return [*paths, *interpreter.editable]


def _interpreter(program: str) -> Interpreter | None:
    """Return what a program of a Python's name answers about itself; None for any other, and for one that does not."""
    if not Path(program).name.startswith("python"):
        return None
    try:
        return ask(program)
    except InfrastructureError:
        return None


def _script_interpreter(program: str) -> str | None:
    """Return the absolute interpreter that a script names in its first line, or None."""
    try:
        with Path(program).open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words and words[0].startswith(b"/") else None


def _link_chain(program: str) -> list[str]:
    """Return a program's path and everything it links to, one step after the other."""
    chain = [program]
    while Path(chain[-1]).is_symlink() and len(chain) < 40:
        chain.append(os.path.normpath(Path(chain[-1]).parent / Path(chain[-1]).readlink()))
    return [path for path in chain if not Path(path).is_symlink() or not _below_links(path)]


def _below_links(path: str) -> bool:
    """Whether a path is reached through one of the system's folder links, which exist inside as links."""
    return any(Path(path).is_relative_to(link) for link in (*_SYSTEM_LINKS, "/bin", "/sbin"))


def _below(path: str, outer: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in outer)


def _is_project(path: str) -> bool:
    """Whether an import path entry is a folder for more than packages, of which only these are wanted."""
    return Path(path).is_dir() and Path(path).name not in _SITE_FOLDERS


def _packages_in(folder: Path) -> list[str]:
    """Return the packages and modules directly inside a project folder: never its `.git`, its data or its notes."""
    return [
        str(path)
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and (path.suffix == ".py" or (path / "__init__.py").is_file())
    ]
