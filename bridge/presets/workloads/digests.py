"""Digest programs, environments and inputs of a workload by what is in their files, and remember files by their facts.

A file is read again when inode, size or times differ. What a compiler left beside a source is not digested: runs are
started so that nothing reads it. Nor is what file managers and editors leave, which comes and goes as a folder is
looked at: it is no part of a program.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bridge.records.workload import ProgramDigest, ProgramRole

FILES_MAX_COUNT: Final = 100_000
_READ_BYTES: Final = 1 << 20
_COMPILED: Final = "__pycache__"
_VENV: Final = "pyvenv.cfg"
_BY_TOOLS: Final = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini|\..*\.sw[a-p]|\.#.*|#.*#")
"""Files of Finder, of macOS on other file systems, of Windows' Explorer, and of Vim and Emacs while they edit."""
_MAPPING: Final = re.compile(r"^MAPPING\b[^=]*= (\{.*\})$", re.MULTILINE)
"""Where a finder of setuptools says what lies where."""
_KNOWN: dict[tuple[str, int, int, int, int, int], str] = {}


def of_file(role: ProgramRole, path: Path) -> ProgramDigest:
    """Return the digest of one file, links followed.

    Raises:
        OSError: it cannot be read.
    """
    return ProgramDigest(
        role=role, path=str(path), sha256=file_digest(path), files=1, bytes=path.stat().st_size
    )  # fmt: skip


def of_folder(role: ProgramRole, folder: Path) -> ProgramDigest:
    """Return the digest over the relative paths, sizes and contents of a folder's files.

    Raises:
        OSError: a file cannot be read.
        ValueError: it holds too many files.
    """
    digest, count, total = hashlib.sha256(), 0, 0
    for path in files_of(folder):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()} {size} {file_digest(path)}\n".encode())
        count, total = count + 1, total + size
        if count > FILES_MAX_COUNT:
            raise ValueError(f"{folder} holds more than {FILES_MAX_COUNT} files")
    return ProgramDigest(role=role, path=str(folder), sha256=digest.hexdigest(), files=count, bytes=total)


def of_path(role: ProgramRole, path: Path) -> ProgramDigest:
    """Return the digest of a folder, or of a file, links followed.

    Raises:
        OSError: a file cannot be read.
        ValueError: it holds too many files.
    """
    return of_folder(role, path) if path.is_dir() else of_file(role, path)


def again(programs: Iterable[ProgramDigest]) -> tuple[ProgramDigest, ...]:
    """Return the digests of the same files and folders as they are now; one that cannot be read is left out."""
    digests = []
    for program in programs:
        with contextlib.suppress(OSError, ValueError):
            digests.append(of_path(program.role, Path(program.path)))
    return tuple(digests)


def editable_in(site: Path) -> Iterator[Path]:
    """Yield the packages and modules that a folder of installed packages only points at: editable installs.

    setuptools maps them in a finder of its own. Others leave a line of a .pth file that names the project's folder, of
    which only packages and modules count: beside them lie its history and its data.

    Raises:
        OSError: a file cannot be read.
    """
    for finder in site.glob("__editable__*_finder.py"):
        mapping = _MAPPING.search(finder.read_text("utf-8", "replace"))
        places: dict[str, str] = {} if mapping is None else ast.literal_eval(mapping[1])
        for place in map(Path, places.values()):
            yield from (path for path in (place, place.with_suffix(".py")) if path.exists())
    for listed in site.glob("*.pth"):
        for line in listed.read_text("utf-8", "replace").splitlines():
            folder = site / line.strip()
            if line.strip() and not line.startswith(("#", "import ", "import\t")) and folder.is_dir():
                yield from (path for path in folder.iterdir() if _is_imported(path))


def _is_imported(path: Path) -> bool:
    return not path.name.startswith(".") and (path.suffix == ".py" or (path / "__init__.py").is_file())


def is_by_tools(name: str) -> bool:
    """Return whether a file has a name by which file managers and editors leave theirs in any folder."""
    return _BY_TOOLS.fullmatch(name) is not None


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in order, without compiled Python, virtual environments and what tools leave."""
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != _COMPILED and not Path(top, name, _VENV).is_file())
        paths = (Path(top, name) for name in sorted(names) if not is_by_tools(name))
        yield from (path for path in paths if stat.S_ISREG(path.stat().st_mode))


def file_digest(path: Path) -> str:
    """Return sha256 of a file's bytes, from memory where it has not changed.

    Raises:
        OSError: it cannot be read.
    """
    facts = path.stat()
    key = (str(path), facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    if key not in _KNOWN:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
        _KNOWN[key] = digest.hexdigest()
    return _KNOWN[key]
