"""Whether what Python may load beside the engine is as it was installed: each file beside the RECORD that lists it.

What Python imports or reads at its start, or the system maps, is looked at: sources, extension modules, libraries,
kernels, `.pth` files. Sources compiled beside them are not: runs are started so that nothing reads them. Whoever
changes a file and its RECORD together is not found out.
"""

from __future__ import annotations

import csv
import json
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.errors import GitError
from bridge.runner.machine.file_digests import FileDigests
from bridge.system.git import run_in_work_tree

LISTED_MOST: Final = 20
_ENGINE: Final = "kakeya"
_EXTRAS: Final = frozenset({"mlx", "torch"})
_OWN: Final = frozenset({"bridge", "engine"})
_LEFT: Final = "~"  # what pip sets aside while it replaces a package, and leaves where it was interrupted
_STARTUP: Final = frozenset({"sitecustomize", "usercustomize"})
_LOADED: Final = (".py", ".pyc", ".dylib", ".metallib", ".pth")
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")


@dataclass(frozen=True)
class Package:
    """A package as its installer wrote it down.

    Attributes:
        name: plain, as requirements are compared.
        folder: of its metadata.
        files: the digest of each file that is loaded, by path below the site; None where there is no RECORD.
    """

    name: str
    folder: Path
    files: dict[str, str] | None

    @property
    def editable(self) -> bool:
        """Whether its sources lie where somebody edits them, which no RECORD lists."""
        try:
            told = json.loads((self.folder / "direct_url.json").read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(told, dict) and bool((told.get("dir_info") or {}).get("editable"))


def altered_files(
    sites: Sequence[Path], strange: Sequence[Path], known: Iterable[str], digests: FileDigests
) -> tuple[str, ...]:
    """Return what Python may load beside the engine and was not installed so, at most `LISTED_MOST` of it.

    Args:
        sites: the folders where packages are installed.
        strange: other places that Python looks at for modules, neither its own library nor the engine's.
        known: names of all packages that the interpreter knows of, wherever they lie.
        digests: of files, kept from run to run.

    Returns:
        Paths below a site, those that run at Python's start first and what was added last; a place that is no site, by
        its whole path; a package that is editable or lies elsewhere, by its metadata or name.
    """
    packages = installed(sites)
    wanted = needed(packages)
    starting, added = added_files(sites)
    found = [*starting, *map(str, strange)]
    found += sorted(name for name in {_plain(one) for one in known} & wanted if name not in packages)
    for name, package in sorted(packages.items()):
        if name in wanted or name == _ENGINE or _starts(package):
            found += _changed(package, digests)
    found += added
    digests.keep()
    return tuple(found[:LISTED_MOST])


def installed(sites: Sequence[Path]) -> dict[str, Package]:
    """Return the packages of some sites by plain name; of two that are called the same, the one that Python takes."""
    found: dict[str, Package] = {}
    for site in sites:
        for package in _packages(site):
            found.setdefault(package.name, package)
    return found


def added_files(sites: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return what no RECORD of its site lists and Python may load: what runs at its start, and the rest."""
    starting: list[str] = []
    added: list[str] = []
    for site in sites:
        listed = {path for package in _packages(site) for path in package.files or ()}
        for path in sorted(_unlisted(site, listed)):
            (starting if _is_startup(path) else added).append(path)
    return starting, added


def beside_engine(top: Path) -> tuple[Path, ...]:
    """Return what Python would import from the folder of an editable engine and git does not track there.

    A module that Python imports by itself at its start is named though it be tracked: only bridge and engine are what
    the commit on record says.

    Args:
        top: the folder that holds both packages.
    """
    offered = sorted(entry.name for entry in os.scandir(top) if entry.name not in _OWN and _is_importable(entry))
    tracked: set[str] = set()
    if offered:
        with suppress(GitError):
            done = run_in_work_tree(top, ["ls-files", "-z", "--", *offered])
            listed = done.stdout.decode("utf-8", "surrogateescape").split("\0") if done.exit_code == 0 else ()
            tracked = {path.partition("/")[0] for path in listed}
    return tuple(top / name for name in offered if name not in tracked or name.partition(".")[0] in _STARTUP)


def needed(packages: dict[str, Package]) -> set[str]:
    """Return which packages the engine requires to compute, directly or through others; not itself.

    Args:
        packages: those whose requirements are known, by plain name.
    """
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [(_ENGINE, _EXTRAS)]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += _requirements(packages[one[0]].folder, one[1]) if one[0] in packages else ()
    return {name for name, _ in seen} - {_ENGINE}


def _packages(site: Path) -> Iterator[Package]:
    for folder in site.glob("*.dist-info"):
        if not folder.name.startswith(_LEFT):
            yield Package(_plain(folder.name.partition("-")[0]), folder, _recorded(folder))


def _recorded(folder: Path) -> dict[str, str] | None:
    try:
        lines = (folder / "RECORD").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    rows = (row for row in csv.reader(lines) if len(row) > 1)
    return {path: said for path, said, *_ in rows if said.startswith("sha256=") and _is_loaded(path)}


def _requirements(folder: Path, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    try:
        head, _, _ = (folder / "METADATA").read_text("utf-8", "replace").partition("\n\n")
    except OSError:  # its RECORD tells
        return
    for line in head.splitlines():
        kind, _, said = line.partition(": ")
        asked, _, marker = said.partition(";")
        extra, named = _EXTRA.search(marker), _REQUIREMENT.match(asked.strip())
        if kind == "Requires-Dist" and named is not None and (extra is None or extra.group(1) in extras):
            wanted = (word.strip() for word in (named.group(2) or "").split(","))
            yield _plain(named.group(1)), frozenset(word for word in wanted if word)


def _unlisted(site: Path, listed: set[str], below: str = "") -> Iterator[str]:
    """Yield what lies below a site and Python may load, of whatever package, that no RECORD lists."""
    try:
        entries = list(os.scandir(site / below))
    except OSError:  # it went while it was looked at, or nobody may import from it
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if not below and entry.name.partition(".")[0] in _STARTUP:
            yield path  # Python imports it by itself, whoever installed it
        elif entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__" and (below or not entry.name.startswith(_LEFT)):
                yield from _unlisted(site, listed, f"{path}/")
        elif path not in listed and (_is_loaded(path) or _is_link_to_folder(entry)):  # which no RECORD lists
            yield path


def _changed(package: Package, digests: FileDigests) -> Iterator[str]:
    """Yield a package's files that are gone or not what its RECORD says, and why there is nothing to compare with."""
    if package.files is None:
        yield f"{package.folder.name}/RECORD"
        return
    if package.editable and package.name != _ENGINE:  # whose commit the record names
        yield f"{package.folder.name}/direct_url.json"
    for path, said in package.files.items():
        try:
            digest = bytes.fromhex(digests.of(package.folder.parent / path))
        except OSError:
            digest = b""
        if said != f"sha256={urlsafe_b64encode(digest).rstrip(b'=').decode()}":
            yield path


def _starts(package: Package) -> bool:
    """Whether Python runs something of it at its start, whatever is imported later."""
    return any(path.endswith(".pth") and "/" not in path for path in package.files or ())


def _is_importable(entry: os.DirEntry[str]) -> bool:
    if _is_loaded(entry.name):
        return True
    try:
        inside = [one.name for one in os.scandir(entry)] if entry.is_dir() else []
    except OSError:
        return False
    return entry.name in _STARTUP or any(name.startswith("__init__.") and _is_loaded(name) for name in inside)


def _is_link_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself leads nowhere
        return False


def _is_startup(path: str) -> bool:
    return path.partition("/")[0].partition(".")[0] in _STARTUP or (path.endswith(".pth") and "/" not in path)


def _is_loaded(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(_LOADED) or ".so" in name


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
