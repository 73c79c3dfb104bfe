"""Read objects of a repository within bounds: without a process where they are loose or packed, else from git.

A large or deep packed delta is read by git's object server. Knows nothing about where a repository comes from.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from bridge.errors import GitError
from bridge.limits import GIT_LOCAL_WALL_S
from bridge.system.git import Process, end, kill
from bridge.system.gitobjects import INDEX_HEAD, KINDS, Kind, patched

_NAMES_AT: Final = len(INDEX_HEAD) + 4 * 256
_LARGE_OFFSET: Final = 1 << 31
# A delta has a kind of its own: its base lies so many bytes before it, or has a name.
_BY_OFFSET, _BY_NAME = 6, 7
_NAME_BYTES: Final = 20
_DELTA_MAX_BYTES: Final = 1 << 20  # of a delta and of what it is applied to
_DELTAS_MAX_COUNT: Final = 50  # in a row, as git packs by default
_ENTRY_HEAD_MAX_BYTES: Final = 48  # kind and size, and of a delta its base
_PIECE_BYTES: Final = 64 * 1024


class GitObjectMissingError(GitError):
    """An object is not in the repository."""


class GitObjectKindError(GitError):
    """An object is of another kind than its reader expects."""


class GitObjectTooLargeError(GitError):
    """An object is larger than its reader allows."""


class ObjectSource(Protocol):
    """Where a reader reads."""

    def without_a_process(self, oid: str, max_bytes: int) -> tuple[str, int, bytes] | None:
        """Return kind, size and up to `max_bytes` of an object, or None where it takes git to read it."""
        ...

    def holds(self, oid: str) -> bool | None:
        """Return whether an object is here, None where that cannot be told without git."""
        ...

    def cat_file(self) -> Process:
        """Start git's object server on pipes."""
        ...


class Packs:
    """The packs in a folder of objects, read by their indexes."""

    def __init__(self, objects: Path) -> None:
        self._folder = objects / "pack"

    def holds(self, oid: str) -> bool | None:
        """Return whether a pack has an object; None where an index cannot be read."""
        told = [_place(index, bytes.fromhex(oid)) for index in self._indexes()]
        return True if any(told) else None if None in told else False

    def read(self, oid: str, max_bytes: int) -> tuple[Kind, int, bytes] | None:
        """Return kind, size and up to `max_bytes` of an object; None where it takes git to read it, or in no pack."""
        for index in self._indexes():
            offset = _place(index, bytes.fromhex(oid))
            if offset:
                return _entry(index, offset, max_bytes)
        return None

    def _indexes(self) -> list[str]:
        try:
            return [entry.path for entry in os.scandir(self._folder) if entry.name.endswith(".idx")]
        except FileNotFoundError:
            return []


@contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _place(index: str, name: bytes) -> int | None:
    """Return where a pack holds an object by its index, 0 where it does not; None where the index cannot be read."""
    try:
        with _opened(index) as descriptor:
            if os.pread(descriptor, len(INDEX_HEAD), 0) != INDEX_HEAD:
                return None
            counts = struct.unpack(">256I", os.pread(descriptor, _NAMES_AT - len(INDEX_HEAD), len(INDEX_HEAD)))
            low, high = (counts[name[0] - 1] if name[0] else 0), counts[name[0]]
            while low < high:
                middle = (low + high) // 2
                found = os.pread(descriptor, len(name), _NAMES_AT + middle * len(name))
                if found == name:
                    # After the names come four bytes of checksum each, then four bytes of offset each.
                    at = _NAMES_AT + counts[255] * (len(name) + 4) + 4 * middle
                    (offset,) = struct.unpack(">I", os.pread(descriptor, 4, at))
                    return int(offset) if offset < _LARGE_OFFSET else None
                low, high = (middle + 1, high) if found < name else (low, middle)
    except (OSError, struct.error):
        return None
    return 0


def _entry(index: str, offset: int, max_bytes: int) -> tuple[Kind, int, bytes] | None:
    """Return kind, size and the first bytes of what a pack holds at a place; None for what takes git, or is broken."""
    deltas: list[bytes] = []
    try:
        with _opened(index.removesuffix(".idx") + ".pack") as descriptor:
            while len(deltas) <= _DELTAS_MAX_COUNT:
                head = os.pread(descriptor, _ENTRY_HEAD_MAX_BYTES, offset)
                number, (size, at) = head[0] >> 4 & 7, _entry_size(head)
                if (kind := KINDS.get(number)) is not None:
                    bound = _DELTA_MAX_BYTES if deltas else max_bytes
                    content = _inflated(descriptor, offset + at, min(size, bound))
                    return _applied(kind, size, content, deltas, max_bytes)
                base, at = _base(index, head, number, offset, at)
                delta = _inflated(descriptor, offset + at, size) if base and size <= _DELTA_MAX_BYTES else None
                if delta is None:
                    return None
                deltas.append(delta)
                offset = base
    except (OSError, IndexError, zlib.error):
        return None
    return None


def _entry_size(head: bytes) -> tuple[int, int]:
    """Return the size in the head of an entry, and where the head goes on."""
    size, shift, at = head[0] & 15, 4, 1
    while head[at - 1] & 128:
        size |= (head[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return size, at


def _base(index: str, head: bytes, number: int, offset: int, at: int) -> tuple[int, int]:
    """Return where the base of a delta lies in the pack, 0 where that cannot be told, and where the head goes on."""
    if number == _BY_NAME:
        return _place(index, head[at : at + _NAME_BYTES]) or 0, at + _NAME_BYTES
    if number != _BY_OFFSET:
        return 0, at
    back = head[at] & 127
    while head[at] & 128:
        at += 1
        back = (back + 1 << 7) | (head[at] & 127)
    return offset - back if 0 < back < offset else 0, at + 1


def _inflated(descriptor: int, place: int, wanted: int) -> bytes | None:
    """Return the first bytes of what is deflated at a place of a file; None where there are fewer."""
    unpacker, content = zlib.decompressobj(), b""
    while len(content) < wanted and (piece := os.pread(descriptor, _PIECE_BYTES, place)):
        place += len(piece)
        content += unpacker.decompress(piece, wanted - len(content))
        while unpacker.unconsumed_tail and len(content) < wanted:
            content += unpacker.decompress(unpacker.unconsumed_tail, wanted - len(content))
    return content if len(content) == wanted else None


def _applied(
    kind: Kind, size: int, content: bytes | None, deltas: list[bytes], max_bytes: int
) -> tuple[Kind, int, bytes] | None:
    """Return an object after its deltas, the last of the list first; None where one is broken or too much comes out."""
    if content is None or (deltas and size > len(content)):
        return None
    for delta in reversed(deltas):
        made = patched(content, delta, _DELTA_MAX_BYTES)
        if made is None:
            return None
        content = made
    if deltas and len(content) > max_bytes:
        return None
    return kind, len(content) if deltas else size, content


class ObjectReader:
    """Reads objects of a repository and its alternates, within bounds."""

    def __init__(self, repository: ObjectSource) -> None:
        self._repository = repository
        self._process: Process | None = None
        self._watchdog: threading.Timer | None = None

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        """Return an object's content.

        Raises:
            GitObjectMissingError: it is not here.
            GitObjectKindError: it is of another kind.
            GitObjectTooLargeError: it is larger than `max_bytes`.
            GitError: git failed.
        """
        loose = self._repository.without_a_process(oid, max_bytes)
        if loose is not None:
            self._check(oid, kind, loose[0], loose[1], max_bytes)
            return loose[2]
        found = self._info(oid)
        if found is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        self._check(oid, kind, *found, max_bytes)
        self._ask(f"contents {oid}")
        return self._exactly(found[1] + 1)[:-1]

    def size(self, oid: str) -> int:
        """Return an object's size in bytes.

        Raises:
            GitObjectMissingError: it is not here.
        """
        loose = self._repository.without_a_process(oid, 0)
        found = loose[:2] if loose is not None else self._info(oid)
        if found is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        return found[1]

    def has(self, oid: str) -> bool:
        """Return whether an object is here."""
        return bool(self._repository.holds(oid)) or self._info(oid) is not None

    def close(self) -> None:
        """End the process, if one was started."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._process is not None:
            end(self._process)
            self._process = None

    @staticmethod
    def _check(oid: str, kind: Kind, found_kind: str, size: int, max_bytes: int) -> None:
        if found_kind != kind:
            raise GitObjectKindError(f"object {oid[:12]} is a {found_kind}; expected a {kind}")
        if size > max_bytes:
            raise GitObjectTooLargeError(f"{kind} {oid[:12]} has {size} bytes; at most {max_bytes} are read")

    def _info(self, oid: str) -> tuple[str, int] | None:
        if self._repository.holds(oid) is False:
            return None
        parts = self._ask(f"info {oid}").split()
        if len(parts) == 2 and parts[1] == "missing":
            return None
        if len(parts) != 3 or parts[0] != oid:
            raise GitError(f"git cat-file answered {parts[:4]!r} about {oid}")
        return parts[1], int(parts[2])

    def _ask(self, command: str) -> str:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - asked for
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(command.encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise GitError("git cat-file ended early") from error
        return process.stdout.readline(1024).decode("ascii", "replace")

    def _exactly(self, size: int) -> bytes:
        stream = self._running().stdout
        assert stream is not None  # noqa: S101
        data = stream.read(size)
        if len(data) != size:
            raise GitError(
                f"git cat-file ended after {len(data)} of {size} bytes: the object may be damaged",
                remedy="in each repository it may come from: git fsck",
            )
        return data

    def _running(self) -> Process:
        if self._process is None:
            self._process = process = self._repository.cat_file()
            self._watchdog = threading.Timer(GIT_LOCAL_WALL_S * 3, kill, (process.pid,))
            self._watchdog.daemon = True
            self._watchdog.start()
        return self._process
