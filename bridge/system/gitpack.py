"""Write objects as one pack with its index, so that many reach the disk as two files.

Format: gitformat-pack(5); no deltas. `bridge.system.gitreader` reads it back.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
import zlib
from collections.abc import Iterable
from typing import Final

from bridge.system.gitobjects import GitObject
from bridge.system.gitreader import INDEX_HEAD, KINDS

_NUMBERS: Final = {kind: number for number, kind in KINDS.items()}
_MAX_BYTES: Final = 1 << 31  # what an index says of a place without its second table


def pack(objects: Iterable[GitObject]) -> tuple[bytes, bytes]:
    """Return a pack of these objects, each once, and its index.

    Raises:
        ValueError: it would take 2 GiB or more.
    """
    distinct = {one.oid: one for one in objects}
    packed, places = bytearray(b"PACK" + struct.pack(">2I", 2, len(distinct))), {}
    for oid, one in distinct.items():
        entry = _head(_NUMBERS[one.kind], len(one.data)) + zlib.compress(one.data, 1)
        places[bytes.fromhex(oid)] = (len(packed), zlib.crc32(entry))
        packed += entry
    if len(packed) >= _MAX_BYTES:
        raise ValueError(f"got objects that pack to {len(packed)} bytes; expected fewer than {_MAX_BYTES}")
    packed += _sha1(packed)
    names = sorted(places)
    firsts = [0] * 256
    for name in names:
        firsts[name[0]] += 1
    index = INDEX_HEAD + struct.pack(">256I", *itertools.accumulate(firsts)) + b"".join(names)
    index += b"".join(struct.pack(">I", places[name][1]) for name in names)
    index += b"".join(struct.pack(">I", places[name][0]) for name in names) + bytes(packed[-20:])
    return bytes(packed), index + _sha1(index)


def _head(number: int, size: int) -> bytes:
    """Return kind and size as an entry begins: four bits of the size, then seven at a time, a high bit before more."""
    head, left = [number << 4 | size & 15], size >> 4
    while left:
        head[-1] |= 128
        head.append(left & 127)
        left >>= 7
    return bytes(head)


def _sha1(data: bytes | bytearray) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
