"""Commits of an archive: a folder of parts with a line a run, and a head that names the digest of each part.

::

    archive    tree {archive.json, 0000.jsonl, 0001.jsonl, ...}, parents = [the commit before, terminal claims ...]

The parents keep claims and results reachable from one ref, and every commit holds all parts of its day, so that its
tree alone says what is in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from bridge import strictjson
from bridge.bus.content import commits
from bridge.bus.store.interface import MalformedObjectError, Reader
from bridge.limits import ARCHIVE_PART_RUNS, MIB
from bridge.records.archive import ArchivedRun, ArchiveHead
from bridge.system.gitobjects import (
    KAKEYA,
    REGULAR,
    Commit,
    Committer,
    GitObject,
    ObjectFormatError,
    TreeEntry,
    blob,
    commit,
    parse_commit,
    tree,
)
from bridge.trust.seals import Seal

ARCHIVE_FILE: Final = b"archive.json"
PART_MAX_BYTES: Final = 2 * MIB
_LINE_MAX_BYTES: Final = 64 * 1024
_LINE_MAX_DEPTH: Final = 4


@dataclass(frozen=True)
class ArchiveCommit:
    """A commit of an archive: its id, head, commit, and the blobs of its parts."""

    oid: str
    head: ArchiveHead
    commit: Commit
    parts: tuple[TreeEntry, ...]


def part_name(number: int) -> bytes:
    """Return the file name of a part."""
    return f"{number:04}.jsonl".encode()


def write_part(runs: Sequence[ArchivedRun]) -> bytes:
    """Return the bytes of a part."""
    return b"".join(run.canonical() + b"\n" for run in runs)


def archive_commit(
    head: ArchiveHead,
    before: Sequence[TreeEntry],
    part: bytes,
    parents: tuple[str, ...],
    seal: Seal | None,
    *,
    by: Committer = KAKEYA,
) -> tuple[GitObject, list[GitObject]]:
    """Return the commit that adds a part to those before it, and all objects that are new with it."""
    new, first = blob(part), blob(head.canonical())
    top = tree(
        [*before, TreeEntry(REGULAR, part_name(len(before)), new.oid), TreeEntry(REGULAR, ARCHIVE_FILE, first.oid)]
    )
    line = "" if seal is None else seal.line()
    message = f"archive {head.runner} {head.day} {head.sequence}{line}"
    made = commit(top.oid, parents, commits.unix_s(head.time), message, by)
    return made, [new, first, top, made]


def read_archive(reader: Reader, oid: str) -> ArchiveCommit:
    """Return a commit of an archive; its parts are not read yet.

    Raises:
        BusError: it is none.
    """
    head, commit_read = commits.read_record(reader, oid, ARCHIVE_FILE, ArchiveHead)
    entries = commits.read_entries(reader, commit_read.tree)
    names = [part_name(number) for number in range(len(head.parts))]
    if any(name not in entries or entries[name].mode != REGULAR for name in names):
        raise MalformedObjectError(f"archive {oid[:12]} lacks one of the {len(names)} parts that it names")
    return ArchiveCommit(oid, head, commit_read, tuple(entries[name] for name in names))


def read_runs(reader: Reader, archive: ArchiveCommit) -> Mapping[str, ArchivedRun]:
    """Return the runs of an archive by id.

    Raises:
        BusError: a part is not what the head says, or a line holds no terminal claim.
    """
    runs: dict[str, ArchivedRun] = {}
    for digest, entry in zip(archive.head.parts, archive.parts, strict=True):
        data = reader.read(entry.oid, "blob", PART_MAX_BYTES)
        lines = data.splitlines()
        if hashlib.sha256(data).hexdigest() != digest or len(lines) > ARCHIVE_PART_RUNS:
            raise MalformedObjectError(f"{entry.name.decode()} of archive {archive.oid[:12]} is not what its head says")
        runs.update((run.id, run) for run in map(_parsed, lines))
    return runs


def claim_of(run: ArchivedRun) -> tuple[str, Commit]:
    """Return the id of the commit of a run's terminal claim, and the commit.

    Raises:
        MalformedObjectError: the commit does not hold this claim.
    """
    raw = GitObject("commit", run.commit.encode("latin-1"))
    try:
        parsed = parse_commit(raw.data)
    except ObjectFormatError as error:
        raise MalformedObjectError(f"the archived claim of run {run.id} is no commit: {error}") from error
    if parsed.tree != commits.file_tree({commits.CLAIM_FILE: run.claim.canonical()})[0].oid:
        raise MalformedObjectError(f"the archived commit of run {run.id} does not hold its claim")
    return raw.oid, parsed


def _parsed(line: bytes) -> ArchivedRun:
    try:
        run = ArchivedRun.parse(line, max_bytes=_LINE_MAX_BYTES, max_depth=_LINE_MAX_DEPTH)
        run.commit.encode("latin-1")
    except (strictjson.StrictJsonError, ValidationError, UnicodeEncodeError) as error:
        raise MalformedObjectError(f"a line of an archive is unreadable: {str(error).splitlines()[0]}") from error
    if run.claim.state != "terminal" or run.claim.id != run.id:
        raise MalformedObjectError(f"the archive's line of run {run.id} holds no claim that ended it")
    return run
