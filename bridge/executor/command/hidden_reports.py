"""Keep from a workload's recompute command what it may not see: reports, and files that nobody declared.

Knows files and their times, not what a report says.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.executor.command.plan import open_folder
from bridge.executor.interface import RunDirectory
from bridge.executor.removal import remove_tree
from bridge.limits import REPORT_MAX_BYTES
from bridge.records.workload import REPORT_FILE

_ASIDE: Final = ".by-recompute"


@dataclass(frozen=True)
class _Taken:
    path: Path
    data: bytes
    mode: int
    times_ns: tuple[int, int]


@contextlib.contextmanager
def reports_hidden(out: Path) -> Iterator[None]:
    """Take the report of every repeat from the disk, and put it back with its times at the end.

    A command without a sandbox could read it wherever it lay, so it is nowhere but in this process. What is no regular
    file, or larger than a report may be, stays: such a report is refused. A link to a folder is none: what it leads to
    may be the host's.

    Args:
        out: the report directory, with a folder for each repeat; no process of the run is there when the block begins
            or ends.

    Raises:
        OSError: a report could not be read, taken away or put back.
    """
    with contextlib.ExitStack() as stack:  # whatever becomes of one, the others are put back
        for folder in sorted(out.iterdir()):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o777)  # a command may have closed its own, and the next one could open it again
                report = _take(folder / REPORT_FILE)
                if report is not None:
                    stack.callback(_put_back, report)
        yield


def remove_undeclared(directory: RunDirectory, stay: Collection[str], *, work: bool) -> int:
    """Delete what earlier commands left where no gate looks, and return how many entries that were.

    A number in a scratch folder, or in a file that is left behind, would be printed and called computed again.

    Args:
        directory: of the run; no process of it is there any more.
        stay: paths below its report directory, relative, of files that were declared or that the gate will see.
        work: whether its current directory too is scratch, and no checkout.

    Raises:
        OSError: something could not be deleted.
    """
    scratch = (directory.home, directory.tmp, *((directory.work,) if work else ()))
    for folder in scratch:
        if folder.is_symlink() or not folder.is_dir():  # what a link leads to may be the host's, and stays
            folder.unlink(missing_ok=True)
            folder.mkdir(mode=0o700)
    left = [path for folder in scratch for path in _entries(folder)]
    left += _not_below(directory.out, "", frozenset(stay))
    for path in left:
        _remove(path)
    return len(left)


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, from which it can be removed after this, though a command closed it.

    Raises:
        OSError: it cannot be opened.
    """
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        folder.chmod(0o700)
    return sorted(folder.iterdir())


def _remove(path: Path) -> None:
    """Remove whatever stands at a path, if anything does.

    Raises:
        OSError: it could not be removed.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif not remove_tree(path):
        raise OSError(f"{path.name!r} in the run's folders cannot be deleted before the output is computed again")


def _not_below(folder: Path, prefix: str, stay: frozenset[str]) -> Iterator[Path]:
    """Yield what of a folder leads to none of the paths that stay; never through a link."""
    for path in _entries(folder):
        name = f"{prefix}{path.name}"
        if path.is_dir() and not path.is_symlink():
            if any(other.startswith(f"{name}/") for other in stay):
                yield from _not_below(path, f"{name}/", stay)
            else:
                yield path
        elif name not in stay:
            yield path


def _take(path: Path) -> _Taken | None:
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > REPORT_MAX_BYTES:
            return None
        with os.fdopen(_open(path), "rb") as file:
            data = file.read(REPORT_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > REPORT_MAX_BYTES:
        return None
    path.unlink()
    return _Taken(path, data, stat.S_IMODE(facts.st_mode), (facts.st_atime_ns, facts.st_mtime_ns))


def _open(path: Path) -> int:
    """Return a descriptor of a report, also of one that its own user closed and could open again."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except PermissionError:
        path.chmod(0o600)
        return os.open(path, flags)


def _put_back(taken: _Taken) -> None:
    path = taken.path
    open_folder(path.parent)  # the command may have put a link in its place
    if path.exists() or path.is_symlink():  # left beside the report, where the gate finds a file that nobody declared
        aside = path.with_name(path.name + _ASIDE)
        _remove(aside)
        path.rename(aside)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, taken.mode), "wb") as file:
        file.write(taken.data)
    os.utime(path, ns=taken.times_ns)
