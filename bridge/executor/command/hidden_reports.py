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
    file, or larger than a report may be, stays: such a report is refused.

    Args:
        out: the report directory, with a folder for each repeat.

    Raises:
        OSError: a report could not be read, taken away or put back.
    """
    taken = [report for folder in sorted(out.iterdir()) if (report := _take(folder / REPORT_FILE)) is not None]
    try:
        yield
    finally:
        for report in taken:
            _put_back(report)


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
    left = [path for folder in scratch for path in folder.iterdir()]
    left += _not_below(directory.out, "", frozenset(stay))
    for path in left:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif not remove_tree(path):
            raise OSError(f"{path.name!r} in the run's folders cannot be deleted before the output is computed again")
    return len(left)


def _not_below(folder: Path, prefix: str, stay: frozenset[str]) -> Iterator[Path]:
    """Yield what of a folder leads to none of the paths that stay; never through a link."""
    for path in sorted(folder.iterdir()):
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
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(REPORT_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > REPORT_MAX_BYTES:
        return None
    path.unlink()
    return _Taken(path, data, stat.S_IMODE(facts.st_mode), (facts.st_atime_ns, facts.st_mtime_ns))


def _put_back(taken: _Taken) -> None:
    path = taken.path
    if path.exists() or path.is_symlink():  # left beside the report, where the gate finds a file that nobody declared
        path.rename(path.with_name(path.name + _ASIDE))
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, taken.mode), "wb") as file:
        file.write(taken.data)
    os.utime(path, ns=taken.times_ns)
