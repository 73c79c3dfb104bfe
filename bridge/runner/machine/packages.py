"""Whether the packages that the engine computes with are as they were installed: each file beside its RECORD.

What Python imports or the system maps is looked at: sources, extension modules, libraries, kernels. Compiled sources
are not: runs are started so that nothing reads them. Whoever changes a file and its RECORD together is not found out,
nor is a file that was added beside those of a package, or a whole package whose metadata is gone.
"""

from __future__ import annotations

import csv
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bridge.runner.machine.file_digests import FileDigests

LISTED_MOST: Final = 20
_ENGINE: Final = "kakeya"
_EXTRAS: Final = frozenset({"mlx", "torch"})
_STARTUP: Final = ("sitecustomize.py", "usercustomize.py")
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")


def altered_files(site: Path, digests: FileDigests) -> tuple[str, ...]:
    """Return which files of the engine's packages are not what was installed, at most `LISTED_MOST` of them.

    Args:
        site: where packages are installed.
        digests: of files, kept from run to run.

    Returns:
        Paths below the site; a module that Python imports by itself at its start is none that was installed.
    """
    installed = {_plain(folder.name.partition("-")[0]): folder for folder in site.glob("*.dist-info")}
    found = [name for name in _STARTUP if (site / name).exists()]
    for name in sorted(needed(installed)):
        found += _changed(site, installed[name], digests)
    digests.keep()
    return tuple(found[:LISTED_MOST])


def needed(installed: Mapping[str, Path]) -> set[str]:
    """Return which installed packages the engine requires to compute, directly or through others; not itself.

    Args:
        installed: the folder of each package's metadata, by its plain name.
    """
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [(_ENGINE, _EXTRAS)]
    while left:
        one = left.pop()
        if one in seen or one[0] not in installed:
            continue
        seen.add(one)
        left += _requirements(installed[one[0]], one[1])
    return {name for name, _ in seen} - {_ENGINE}


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


def _changed(site: Path, folder: Path, digests: FileDigests) -> Iterator[str]:
    try:
        lines = (folder / "RECORD").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        yield f"{folder.name}/RECORD"
        return
    for path, said, *_ in (row for row in csv.reader(lines) if len(row) > 1):
        if said.startswith("sha256=") and _is_loaded(path):
            try:
                digest = bytes.fromhex(digests.of(site / path))
            except OSError:
                digest = b""
            if said != f"sha256={urlsafe_b64encode(digest).rstrip(b'=').decode()}":
                yield path


def _is_loaded(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith((".py", ".dylib", ".metallib")) or ".so" in name


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
