"""The files of a journal: the one that is written, and the last full ones before it.

A full file is set aside and the next begins with a snapshot, which carries the lines of runs that have not reached
their end; so what is read at a start stays small, and the chain of digests goes on over all files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pydantic

from bridge import strictjson
from bridge.errors import JournalError
from bridge.limits import JOURNAL_FILES_COUNT, MIB
from bridge.records.base import Count, Moment, Record, RunId, Sha256, Text
from bridge.runner.state.history import JournalLine
from bridge.system.durable import write_atomically

ZERO: Final = "0" * 64
_LINE_MAX_BYTES: Final = 64 * MIB
_LINE_MAX_DEPTH: Final = 8
_FORGED: Final = "keep the file for inspection, move it away, and start the runner with a new one"


class JournalSnapshot(Record):
    """The first line of a file that goes on where a full one ended.

    Attributes:
        seq, prev_sha256: as in any line.
        first: the digest that names the journal, of its very first line.
        sequence, digest, run, void: where its chain of attestations is.
        claimed: (time, principal) of what was claimed within the last day.
        carried: the lines of the runs that have not reached their end.
    """

    seq: Count
    prev_sha256: Sha256
    first: Sha256
    sequence: Count
    digest: Sha256
    run: RunId | None
    void: tuple[Count, ...]
    claimed: tuple[tuple[Moment, Text], ...]
    carried: tuple[JournalLine, ...]


Entry = JournalLine | JournalSnapshot


def files_of(path: Path) -> list[Path]:
    """Return the files of a journal that exist, oldest first."""
    before = sorted(path.parent.glob(f"{path.stem}-{'[0-9]' * 12}{path.suffix}"))
    return [*before, path] if path.exists() else before


def begin_next(path: Path, first_seq: int, snapshot: JournalSnapshot) -> bytes:
    """Set a full file aside and begin the next with a snapshot; return the snapshot's line.

    A crash in between leaves the full file in its place: the same call may be repeated.

    Args:
        path: the file that is written.
        first_seq: the number of its first line.
        snapshot: the first line of the next.
    """
    aside = path.with_name(f"{path.stem}-{first_seq:012}{path.suffix}")
    aside.unlink(missing_ok=True)
    os.link(path, aside)
    raw = snapshot.canonical() + b"\n"
    write_atomically(path, raw)
    for old in files_of(path)[:-JOURNAL_FILES_COUNT]:
        old.unlink(missing_ok=True)
    return raw


def read_file(path: Path) -> Iterator[tuple[Entry, bytes]]:
    """Yield the lines of one file, its chain checked.

    Raises:
        JournalError: the chain does not hold.
    """
    number, previous = 0, ZERO
    for place, raw in enumerate(path.read_bytes().splitlines(keepends=True)):
        try:
            line = _parsed(raw, first=place == 0)
        except (strictjson.StrictJsonError, pydantic.ValidationError) as error:
            raise JournalError(f"{path}, line {place + 1}: {str(error).splitlines()[0]}") from error
        if isinstance(line, JournalSnapshot):
            number, previous = line.seq, line.prev_sha256
        if line.seq != number or line.prev_sha256 != previous:
            raise JournalError(
                f"{path}, line {place + 1}: the chain does not hold; a line was altered, removed or added",
                remedy=_FORGED,
            )
        number, previous = number + 1, hashlib.sha256(raw).hexdigest()
        yield line, raw


def read_files(path: Path) -> Iterator[tuple[Entry, bytes]]:
    """Yield the lines of all files of a journal, oldest first.

    Raises:
        JournalError: the chain does not hold within a file or from one to the next.
    """
    last: tuple[int, str] | None = None
    for file in files_of(path):
        for line, raw in read_file(file):
            if last is not None and (line.seq, line.prev_sha256) != last:
                raise JournalError(f"{file} does not go on where the file before it ended", remedy=_FORGED)
            last = (line.seq + 1, hashlib.sha256(raw).hexdigest())
            yield line, raw


def _parsed(raw: bytes, *, first: bool) -> Entry:
    if first and b'"carried":' in raw[:64]:
        return JournalSnapshot.parse(raw, max_bytes=_LINE_MAX_BYTES, max_depth=_LINE_MAX_DEPTH)
    return JournalLine.parse(raw)
