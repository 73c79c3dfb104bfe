"""Git objects as values: their bytes, their ids, and back. No repository and no git needed.

Format: https://git-scm.com/book/en/v2/Git-Internals-Git-Objects. Building them here makes an id a function of its
content, costs no process, and lets a result prove its own history offline.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["blob", "tree", "commit"]

REGULAR: Final = "100644"
EXECUTABLE: Final = "100755"
SYMLINK: Final = "120000"
DIRECTORY: Final = "40000"
SUBMODULE: Final = "160000"
# gitformat-pack(5). An index: a magic number, the version, 256 counts by first byte, then the sorted names. An entry of
# a pack: its kind and its size in as many bytes as that takes, then deflated content.
_INDEX_HEAD: Final = b"\xfftOc\x00\x00\x00\x02"
_NUMBERS: Final[Mapping[Kind, int]] = {"commit": 1, "tree": 2, "blob": 3}
_PACK_MAX_BYTES: Final = 1 << 31  # what an index says of a place without its second table
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class ObjectFormatError(ValueError):
    """The bytes are no tree or commit."""


@dataclass(frozen=True)
class GitObject:
    """An object: what it is and its content without git's header."""

    kind: Kind
    data: bytes

    @property
    def oid(self) -> str:
        """The id git gives it (sha1, hex)."""
        return hashlib.sha1(self.header + self.data, usedforsecurity=False).hexdigest()

    @property
    def header(self) -> bytes:
        """What git puts before the content when it hashes and stores it."""
        return f"{self.kind} {len(self.data)}\0".encode()


@dataclass(frozen=True)
class TreeEntry:
    """A name in a tree: mode as git writes it, bytes of the name, id.

    Attributes:
        padding: zeros before the mode, as old tools wrote them; they are part of the tree's bytes, so of its id.
    """

    mode: str
    name: bytes
    oid: str
    padding: str = ""


@dataclass(frozen=True)
class Commit:
    """What the bridge reads of a commit; `committer` is name and address without the time."""

    tree: str
    parents: tuple[str, ...]
    time_unix_s: int
    message: str
    committer: str = ""


@dataclass(frozen=True)
class Committer:
    """Who makes the commits of one side of a bus.

    Attributes:
        who: author and committer: ``NAME <ADDRESS>``.
        prefix: goes before each message, as some hosts look for a word in it.
    """

    who: str = "Kakeya <kakeya@localhost>"
    prefix: str = ""


KAKEYA: Final = Committer()
_WHO = re.compile(r"[^<>]{1,100} <[^<>\s]{1,100}>")
_PREFIX_MAX_CHARS: Final = 80


def committer_from(who: str | None, prefix: str = "") -> Committer:
    """Return a committer as a setting names it.

    Args:
        who: ``NAME <ADDRESS>``, None for the usual one.
        prefix: of each message; a space is put behind it.

    Raises:
        ValueError: it is not of that form, or has line breaks or other control characters.
    """
    if who is not None and (_WHO.fullmatch(who) is None or not who.isprintable() or who != who.strip()):
        raise ValueError(f"got committer {who[:80]!r}; expected one line: NAME <ADDRESS>")
    if len(prefix) > _PREFIX_MAX_CHARS or not prefix.isprintable():
        raise ValueError(
            f"got message prefix {prefix[:80]!r}; expected one line of at most {_PREFIX_MAX_CHARS} characters"
        )
    return Committer(KAKEYA.who if who is None else who, f"{prefix.strip()} " if prefix.strip() else "")


def blob(data: bytes) -> GitObject:
    """Return the blob of these bytes."""
    return GitObject("blob", data)


def tree(entries: Iterable[TreeEntry]) -> GitObject:
    """Return a tree; entries are sorted as git sorts them, folders as if their names ended in a slash."""
    ordered = sorted(entries, key=lambda entry: entry.name + (b"/" if entry.mode == DIRECTORY else b""))
    return GitObject(
        "tree",
        b"".join(
            f"{entry.padding}{entry.mode} ".encode() + entry.name + b"\0" + bytes.fromhex(entry.oid)
            for entry in ordered
        ),
    )


def commit(tree_oid: str, parents: Iterable[str], time_unix_s: int, message: str, by: Committer = KAKEYA) -> GitObject:
    """Return a commit of the bridge; its author is its committer, so equal input gives an equal id."""
    who = f"{by.who} {time_unix_s} +0000"
    lines = [f"tree {tree_oid}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
    return GitObject("commit", ("\n".join(lines) + f"\n\n{by.prefix}{message}\n").encode())


def parse_tree(data: bytes, *, oid_bytes: int = 20, max_entries: int | None = None) -> tuple[TreeEntry, ...]:
    """Return the entries of a tree in their stored order.

    Raises:
        ObjectFormatError: not a tree, or more entries than `max_entries`.
    """
    entries: list[TreeEntry] = []
    at = 0
    while at < len(data):
        space, end = data.find(b" ", at, at + 8), data.find(b"\0", at)
        if space < 0 or end < space or end + 1 + oid_bytes > len(data):
            raise ObjectFormatError(f"no tree: broken entry at byte {at}")
        oid = data[end + 1 : end + 1 + oid_bytes].hex()
        written = data[at:space].decode("latin-1")
        mode = written.lstrip("0")
        padding = written[: len(written) - len(mode)]
        entries.append(TreeEntry(mode, data[space + 1 : end], oid, padding))
        if max_entries is not None and len(entries) > max_entries:
            raise ObjectFormatError(f"tree has more than {max_entries} entries")
        at = end + 1 + oid_bytes
    return tuple(entries)


def parse_commit(data: bytes) -> Commit:
    """Return what the bridge reads of a commit.

    Raises:
        ObjectFormatError: not a commit.
    """
    head, _, message = data.partition(b"\n\n")
    lines = head.split(b"\n")
    parents: list[str] = []
    for line in lines[1:]:
        if not line.startswith(b"parent "):
            break
        parents.append(_oid(line.removeprefix(b"parent ")))
    committer = next((line for line in lines if line.startswith(b"committer ")), b"")
    moment = re.search(rb"(?<=^committer )(.*>) (\d{1,12}) [+-]\d{1,9}$", committer)
    if not lines[0].startswith(b"tree ") or moment is None:
        raise ObjectFormatError("no commit: tree or committer is missing")
    return Commit(
        tree=_oid(lines[0].removeprefix(b"tree ")),
        parents=tuple(parents),
        time_unix_s=int(moment[2]),
        message=message.decode("utf-8", errors="replace"),
        committer=moment[1].decode("utf-8", errors="replace"),
    )


def _oid(data: bytes) -> str:
    text = data.decode("latin-1")
    if _OID.fullmatch(text) is None:
        raise ObjectFormatError(f"no object id: {text[:70]!r}")
    return text


def pack(objects: Iterable[GitObject]) -> tuple[bytes, bytes]:
    """Return a pack of these objects, each once and whole, and its index (gitformat-pack(5)).

    Raises:
        ValueError: it would take 2 GiB or more.
    """
    distinct = {item.oid: item for item in objects}
    packed, places = bytearray(b"PACK" + struct.pack(">2I", 2, len(distinct))), {}
    for oid, item in distinct.items():
        entry = _entry_head(_NUMBERS[item.kind], len(item.data)) + zlib.compress(item.data, 1)
        places[bytes.fromhex(oid)] = (len(packed), zlib.crc32(entry))
        packed += entry
    if len(packed) >= _PACK_MAX_BYTES:
        raise ValueError(f"got objects that pack to {len(packed)} bytes; expected fewer than {_PACK_MAX_BYTES}")
    packed += _sha1(packed)
    names = sorted(places)
    firsts = [0] * 256
    for name in names:
        firsts[name[0]] += 1
    index = _INDEX_HEAD + struct.pack(">256I", *itertools.accumulate(firsts)) + b"".join(names)
    index += b"".join(struct.pack(">I", places[name][1]) for name in names)
    index += b"".join(struct.pack(">I", places[name][0]) for name in names) + bytes(packed[-20:])
    return bytes(packed), index + _sha1(index)


def _entry_head(number: int, size: int) -> bytes:
    """Return kind and size as an entry begins: four bits of the size, then seven at a time, a high bit before more."""
    head, left = [number << 4 | size & 15], size >> 4
    while left:
        head[-1] |= 128
        head.append(left & 127)
        left >>= 7
    return bytes(head)


def _sha1(data: bytes | bytearray) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
