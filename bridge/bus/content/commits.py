"""What the bus stores as commits, and how it is read back.

::

    bus, claim, runner   tree {bus.json | claim.json | beacon.json}, parent = previous tip
    claim, runner, log   the message ends in the runner's seal where it has a key, see `bridge.trust.seals`
    claim, terminal      the same, parents = [previous tip, result commit]
    log                  tree {chunk, head.json}, parent = previous chunk
    request, cancel      tree {.mac-bridge/: request.json | cancel.json [, *.sig]} over nothing or over a workload tree
    result               root commit, tree = the result's files
    branch copy          parent = request commit, the result's tree at .mac-bridge/result, message with [skip ci]

Equal content gives an equal id: times come from the records, never from a clock here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError

from bridge import strictjson
from bridge.bus.store.interface import MalformedObjectError, MissingObjectError, Reader, RefStore
from bridge.bus.views import LogChunk
from bridge.errors import ObjectError
from bridge.limits import KIB, LOG_CHUNK_MAX_BYTES, REQUEST_MAX_BYTES
from bridge.system.clock import parse_rfc3339
from bridge.system.gitobjects import (
    DIRECTORY,
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
    parse_tree,
    tree,
)

FOLDER: Final = b".mac-bridge"
REQUEST_FILE: Final = b"request.json"
CANCEL_FILE: Final = b"cancel.json"
SIGNATURE: Final = b".sig"
RESULT_FOLDER: Final = b"result"
CLAIM_FILE: Final = b"claim.json"
BUS_FILE: Final = b"bus.json"
BEACON_FILE: Final = b"beacon.json"
HEAD_FILE: Final = b"head.json"
CHUNK_FILE: Final = b"chunk"

COMMIT_MAX_BYTES: Final = 16 * KIB
SMALL_TREE_MAX_BYTES: Final = 16 * KIB
SIGNATURE_MAX_BYTES: Final = 16 * KIB
RECORD_MAX_BYTES: Final = 64 * KIB
RECORD_MAX_DEPTH: Final = 8

if TYPE_CHECKING:
    from bridge.records.base import Record
    from bridge.records.bus import Beacon, BusRecord
    from bridge.records.claim import Claim
    from bridge.trust.seals import Seal

R = TypeVar("R", bound="Record")


def file_tree(files: Mapping[bytes, bytes]) -> tuple[GitObject, list[GitObject]]:
    """Return the tree of a flat folder, and all objects of it, the tree last."""
    blobs = {name: blob(data) for name, data in files.items()}
    top = tree(TreeEntry(REGULAR, name, content.oid) for name, content in blobs.items())
    return top, [*blobs.values(), top]


def nested_tree(files: Mapping[str, bytes]) -> tuple[GitObject, list[GitObject]]:
    """Return the tree of files by relative POSIX path, and all objects of it, the tree last."""
    here: dict[bytes, bytes] = {}
    below: dict[str, dict[str, bytes]] = {}
    for path, data in files.items():
        folder, slash, rest = path.partition("/")
        if slash:
            below.setdefault(folder, {})[rest] = data
        else:
            here[path.encode()] = data
    objects: list[GitObject] = []
    entries = [TreeEntry(REGULAR, name, blob(data).oid) for name, data in here.items()]
    objects.extend(blob(data) for data in here.values())
    for folder, inner in below.items():
        subtree, inner_objects = nested_tree(inner)
        entries.append(TreeEntry(DIRECTORY, folder.encode(), subtree.oid))
        objects.extend(inner_objects)
    top = tree(entries)
    return top, [*objects, top]


def record_commit(
    name: bytes, record: Record, moment: str, parents: tuple[str, ...], message: str, *, by: Committer
) -> tuple[GitObject, list[GitObject]]:
    """Return the commit of a record in a file of its own, and all objects of it, the commit last."""
    top, objects = file_tree({name: record.canonical()})
    head = commit(top.oid, parents, unix_s(moment), message, by)
    return head, [*objects, head]


def claim_commit(
    claim: Claim, parents: tuple[str, ...], seal: Seal | None = None, by: Committer = KAKEYA
) -> tuple[GitObject, list[GitObject]]:
    """Return the commit of a claim, and all objects of it."""
    return record_commit(CLAIM_FILE, claim, claim.time, parents, f"{_claim_subject(claim)}{_line(seal)}", by=by)


def committer_of(claim: Claim, head: Commit) -> Committer:
    """Return who made the commit of a claim; the prefix of its message is what stands before the usual words."""
    prefix, subject, _ = head.message.partition(_claim_subject(claim))
    return Committer(head.committer, prefix if subject else "")


def _claim_subject(claim: Claim) -> str:
    return f"{claim.state} {claim.id}"


def beacon_commit(
    beacon: Beacon, parents: tuple[str, ...], seal: Seal | None = None, by: Committer = KAKEYA
) -> tuple[GitObject, list[GitObject]]:
    """Return the commit of a beacon, and all objects of it."""
    return record_commit(BEACON_FILE, beacon, beacon.time, parents, f"beacon {beacon.runner}{_line(seal)}", by=by)


def bus_commit(
    record: BusRecord, moment: str, parents: tuple[str, ...] = (), by: Committer = KAKEYA
) -> tuple[GitObject, list[GitObject]]:
    """Return the commit of a bus record, over the one before where there is one, and all objects of it."""
    return record_commit(BUS_FILE, record, moment, parents, f"bus {record.bus_id}", by=by)


def log_commit(
    chunk: LogChunk, parents: tuple[str, ...], time_unix_s: int, seal: Seal | None = None, by: Committer = KAKEYA
) -> tuple[GitObject, list[GitObject]]:
    """Return the commit of a log chunk, and all objects of it."""
    top, objects = file_tree({CHUNK_FILE: chunk.data, HEAD_FILE: chunk.head.canonical()})
    head = commit(top.oid, parents, time_unix_s, f"log {chunk.head.id} {chunk.head.seq}{_line(seal)}", by)
    return head, [*objects, head]


def _line(seal: Seal | None) -> str:
    return "" if seal is None else seal.line()


def folder_commit(
    files: Mapping[bytes, bytes],
    *,
    over: tuple[TreeEntry, ...],
    parents: tuple[str, ...],
    time_unix_s: int,
    message: str,
    by: Committer = KAKEYA,
) -> tuple[GitObject, list[GitObject]]:
    """Return a commit with `.mac-bridge` holding exactly these files, over the entries of a workload tree."""
    folder, objects = file_tree(files)
    others = [entry for entry in over if entry.name != FOLDER]
    top = tree([*others, TreeEntry(DIRECTORY, FOLDER, folder.oid)])
    head = commit(top.oid, parents, time_unix_s, message, by)
    return head, [*objects, top, head]


def read_commit(reader: Reader, oid: str) -> Commit:
    """Return a commit.

    Raises:
        BusError: missing, too large or malformed.
    """
    try:
        return parse_commit(reader.read(oid, "commit", COMMIT_MAX_BYTES))
    except ObjectFormatError as error:
        raise MalformedObjectError(f"{oid[:12]} is no commit the bridge reads: {error}") from error


def parents_at(store: RefStore, ref: str, tip: str | None, max_bytes: int) -> tuple[str, ...]:
    """Return the parents of what replaces a ref's tip: the tip, or none where it is no commit that can be had.

    No git sends a commit over anything else, nor what goes in the same push.

    Raises:
        RemoteError: the remote did not answer.
    """
    if tip is None:
        return ()
    try:
        store.obtain({ref: tip}, max_bytes=max_bytes)
        with store.reader() as reader:
            read_commit(reader, tip)
    except (ObjectError, MissingObjectError):
        return ()
    return (tip,)


def read_entries(reader: Reader, tree_oid: str, max_bytes: int = SMALL_TREE_MAX_BYTES) -> dict[bytes, TreeEntry]:
    """Return a tree's entries by name.

    Raises:
        BusError: missing, too large or malformed.
    """
    try:
        return {entry.name: entry for entry in parse_tree(reader.read(tree_oid, "tree", max_bytes))}
    except ObjectFormatError as error:
        raise MalformedObjectError(f"{tree_oid[:12]}: {error}") from error


def read_file(reader: Reader, entries: Mapping[bytes, TreeEntry], name: bytes, max_bytes: int) -> bytes | None:
    """Return the content of a regular file in a folder, or None when there is none of that name.

    Raises:
        BusError: it is too large.
    """
    entry = entries.get(name)
    if entry is None or entry.mode != REGULAR:
        return None
    return reader.read(entry.oid, "blob", max_bytes)


def read_record(reader: Reader, oid: str, name: bytes, kind: type[R]) -> tuple[R, Commit]:
    """Return the record in a commit's file, and the commit.

    Raises:
        BusError: there is no such file, or it is not such a record.
    """
    head = read_commit(reader, oid)
    data = read_file(reader, read_entries(reader, head.tree), name, RECORD_MAX_BYTES)
    if data is None:
        raise MalformedObjectError(f"{oid[:12]} holds no {name.decode()}")
    try:
        record = kind.parse(data, max_bytes=RECORD_MAX_BYTES, max_depth=RECORD_MAX_DEPTH)
    except (strictjson.StrictJsonError, ValidationError) as error:
        raise MalformedObjectError(
            f"{name.decode()} in {oid[:12]} is unreadable: {str(error).splitlines()[0]}"
        ) from error
    return record, head


def read_chunk(reader: Reader, oid: str) -> tuple[LogChunk, Commit]:
    """Return a log chunk whose digest holds, and its commit.

    Raises:
        BusError: it is not one.
    """
    from bridge.records.logs import LogHead

    head, read = read_record(reader, oid, HEAD_FILE, LogHead)
    data = read_file(reader, read_entries(reader, read.tree), CHUNK_FILE, LOG_CHUNK_MAX_BYTES)
    if data is None or len(data) != head.length or hashlib.sha256(data).hexdigest() != head.sha256:
        raise MalformedObjectError(f"log chunk {head.seq} in {oid[:12]} is not what its head says")
    return LogChunk(head, data), read


def read_folder(reader: Reader, head: Commit, max_tree_bytes: int) -> dict[bytes, TreeEntry]:
    """Return the entries of `.mac-bridge` in a commit; empty when there is none.

    Raises:
        BusError: a tree is missing, too large or malformed.
    """
    folder = read_entries(reader, head.tree, max_tree_bytes).get(FOLDER)
    if folder is None or folder.mode != DIRECTORY:
        return {}
    return read_entries(reader, folder.oid)


def read_signed(reader: Reader, folder: Mapping[bytes, TreeEntry], name: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the bytes of a request or cancel and of its signature, None where absent.

    Raises:
        BusError: one is too large.
    """
    data = read_file(reader, folder, name, REQUEST_MAX_BYTES)
    return data, read_file(reader, folder, name + SIGNATURE, SIGNATURE_MAX_BYTES)


def mark_of(signature: bytes | None) -> str:
    """Return what a signature adds to the name of its branch, nothing without one."""
    return "" if signature is None else hashlib.sha256(signature).hexdigest()[:12]


def unix_s(moment: str) -> int:
    """Return whole seconds since the epoch of an RFC 3339 time."""
    return int(parse_rfc3339(moment).timestamp())
