"""Bring the files of a finished run's report directory in, trusting none of them.

Knows nothing about what a report means. Called when every process of the run is dead. Regular files only, opened
without following links at any level, one name each, bounded in depth, count and bytes, hashed while read. Nothing that
git would take for its own, and no path that a result tree may not hold.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bridge.executor.command.redaction import contains_secret
from bridge.limits import (
    LOG_MAX_BYTES,
    REPORT_MAX_BYTES,
    REPORTS_MAX_COUNT,
    RESULT_MAX_BYTES,
    RESULT_PATH_MAX_CHARS,
    RESULT_PATH_MAX_PARTS,
)
from bridge.records.run import LimitHit, OutputRecord

# A result tree holds them below a folder of its own, `reports/`; who reads it refuses a path beyond its bounds.
_DEPTH_MAX: Final = RESULT_PATH_MAX_PARTS - 1
_ENTRIES_MAX: Final = 20_000
_PATH_MAX_CHARS: Final = RESULT_PATH_MAX_CHARS - len("reports/")
# The short names that Windows gives .git, .gitmodules and .gitattributes: fsck takes them for those (git, path.c).
_SHORT_GIT_NAME: Final = re.compile(r"g[a-z0-9]{0,6}~[0-9]", re.IGNORECASE)
_TOTAL_MAX_BYTES: Final = RESULT_MAX_BYTES - 2 * LOG_MAX_BYTES  # the log and the records need room in the result tree
_READ_BYTES: Final = 1 << 20
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class Imported:
    """What came in and what did not.

    Attributes:
        refused: one line per file that was left behind, with the reason.
        hits: bounds that left something behind.
    """

    outputs: list[OutputRecord] = field(default_factory=list)
    reports: dict[str, bytes] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    hits: list[LimitHit] = field(default_factory=list)


@contextmanager
def _opened(name: str | Path, flags: int, *, at: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Stamp:
    """Which directory the report directory was at the start, and when, in nanoseconds of its file system's clock."""

    device: int
    inode: int
    since_ns: int

    def set_back(self, seconds: float) -> Stamp:
        """Return what a clock that was set back by so much since would have written down at the start."""
        return replace(self, since_ns=self.since_ns - round(seconds * 1e9))


def start_stamp(out: Path) -> Stamp:
    """Touch the report directory and say which directory that was, and when."""
    os.utime(out)
    facts = out.stat(follow_symlinks=False)
    return Stamp(facts.st_dev, facts.st_ino, facts.st_ctime_ns)


def import_outputs(
    out: Path, *, stamp: Stamp, declared: Sequence[str], secrets: Iterable[str] = (), marks_bytes: int = 0
) -> Imported:
    """Read the files below `out`, declared ones first so that a flood of others cannot crowd them out.

    Args:
        out: the report directory; nobody writes there any more.
        stamp: what `start_stamp` returned before the run.
        declared: relative POSIX paths of the declared reports.
        secrets: a file that shows one of these is refused.
        marks_bytes: what the run's sample marks take of the room that the result has for both.
    """
    result = Imported()
    try:
        with _opened(out, _OPEN | os.O_DIRECTORY) as top:
            facts = os.fstat(top)
            if (facts.st_dev, facts.st_ino) != (stamp.device, stamp.inode):
                result.refused.append("the report directory was replaced by another one")
            else:
                room = _TOTAL_MAX_BYTES - marks_bytes
                _import(top, stamp.since_ns, declared, tuple(secrets), result, room=room)
    except OSError as error:
        result.refused.append(f"the report directory cannot be read: {error.strerror}")
    del result.refused[REPORTS_MAX_COUNT:]
    return result


def _import(
    top: int, since_ns: int, declared: Sequence[str], secrets: tuple[str, ...], result: Imported, *, room: int
) -> None:
    """Choose among the files there are and read them."""
    # By their names first: the list of a folder that holds more than is listed may end before it comes to them.
    paths = [path for path in dict.fromkeys(declared) if _is_file(top, path)]
    paths += sorted(set(_walk(top, "", 0, result)) - set(paths))
    if len(paths) > REPORTS_MAX_COUNT:
        result.hits.append(_hit("reports", REPORTS_MAX_COUNT, len(paths)))
        result.refused += [f"{path!r}: more than {REPORTS_MAX_COUNT} files" for path in paths[REPORTS_MAX_COUNT:]]
    spelt: dict[str, str] = {}
    for path in paths[:REPORTS_MAX_COUNT]:
        if (other := _spelt_otherwise(path, spelt)) is not None:
            result.refused.append(f"{path!r}: one name with {other!r} where a system tells no case apart")
            continue
        room -= _take(top, path, min(REPORT_MAX_BYTES, room), since_ns, secrets, result)


def _spelt_otherwise(path: str, spelt: dict[str, str]) -> str | None:
    """Return how a path or a folder of it was spelt before, None where it is new or the same; add it.

    Of two that a Mac takes for one name, a stored result would keep the second in place of the first.
    """
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        spelling = "/".join(parts[:count])
        before = spelt.setdefault(unicodedata.normalize("NFC", spelling).casefold(), spelling)
        if before != spelling:
            return before
    return None


def _hit(name: str, bound: float, observed: float) -> LimitHit:
    return LimitHit(limit=name, bound=bound, observed=observed, action="refused")


def _name_problem(name: str, prefix: str) -> str | None:
    """Say what is wrong with a file's name, or None."""
    if name.lower().startswith(".git") or _SHORT_GIT_NAME.match(name):
        return "a name that git gives a meaning to"
    if name.startswith("."):
        return "a hidden name, which no result holds"
    if not name.isprintable() or "\\" in name or any(0xD800 <= ord(char) <= 0xDFFF for char in name):
        return "a name with unprintable characters"
    if len(prefix) + len(name) > _PATH_MAX_CHARS:
        return "a path that is too long"
    return None


def _is_file(top: int, path: str) -> bool:
    """Whether a regular file stands at a relative path; what is wrong with another one, the walk says."""
    *folders, name = path.split("/")
    if len(folders) >= _DEPTH_MAX or len(path) > _PATH_MAX_CHARS:
        return False
    if any(part in ("", ".", "..") or _name_problem(part, "") for part in (*folders, name)):
        return False
    with ExitStack() as stack:
        try:
            for folder in folders:
                top = stack.enter_context(_opened(folder, _OPEN | os.O_DIRECTORY, at=top))
            return stat.S_ISREG(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode)
        except OSError:
            return False


def _walk(directory: int, prefix: str, depth: int, result: Imported) -> Iterator[str]:
    """Yield the relative paths of regular files; say of everything else why it stays behind."""
    with os.scandir(directory) as entries:
        for index, entry in enumerate(entries):
            path = prefix + entry.name
            if index >= _ENTRIES_MAX:
                result.hits.append(_hit("files", _ENTRIES_MAX, index + 1))
                return
            problem = _name_problem(entry.name, prefix)
            mode = entry.stat(follow_symlinks=False).st_mode
            if problem is None and stat.S_ISDIR(mode):
                problem = yield from _descend(directory, path, depth + 1, result)
            elif problem is None and not stat.S_ISREG(mode):
                problem = "not a regular file"
            elif problem is None:
                yield path
            if problem is not None and len(result.refused) < REPORTS_MAX_COUNT:
                result.refused.append(f"{path[:_PATH_MAX_CHARS]!r}: {problem}")


def _descend(parent: int, path: str, depth: int, result: Imported) -> Generator[str, None, str | None]:
    """Yield what a folder of a folder holds; return why it, or what is left of it, stays behind, or None."""
    if depth >= _DEPTH_MAX:
        return f"deeper than {_DEPTH_MAX - 1} directories"
    try:
        with _opened(path.rpartition("/")[2], _OPEN | os.O_DIRECTORY, at=parent) as inner:
            yield from _walk(inner, f"{path}/", depth, result)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _take(  # noqa: PLR0917 - one caller
    top: int, path: str, bound: int, since_ns: int, secrets: tuple[str, ...], result: Imported
) -> int:
    """Read one file into the result, or say why not; return how many bytes of the room it took."""
    *folders, name = path.split("/")
    directory = os.dup(top)
    try:
        for folder in folders:
            inner = os.open(folder, _OPEN | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        with _opened(name, _OPEN, at=directory) as file:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                result.refused.append(f"{path!r}: not a regular file of its own (it has {facts.st_nlink} names)")
                return 0
            data = _read(file, bound)
    except OSError as error:
        result.refused.append(f"{path!r}: {error.strerror}")
        return 0
    finally:
        os.close(directory)
    if data is None:
        result.refused.append(f"{path!r}: {facts.st_size} bytes, at most {bound} are taken")
        result.hits.append(_hit("report_bytes", bound, facts.st_size))
        return 0
    if contains_secret(data[0], secrets) or contains_secret(path.encode(), secrets):
        result.refused.append(f"{path!r}: it shows a secret of this host")
        result.hits.append(_hit("secret_in_report", 0, 1))
        return 0
    content, digest = data
    fresh = min(facts.st_ctime_ns, facts.st_mtime_ns) >= since_ns
    result.reports[path] = content
    result.outputs.append(OutputRecord(path=path, bytes=len(content), sha256=digest, after_start=fresh))
    return len(content)


def _read(file: int, bound: int) -> tuple[bytes, str] | None:
    """Return a file's bytes and their sha256, or None when there are more than the bound."""
    digest = hashlib.sha256()
    content = bytearray()
    while block := os.read(file, _READ_BYTES):
        digest.update(block)
        content += block
        if len(content) > bound:
            return None
    return bytes(content), digest.hexdigest()
