"""Digests of large files, taken once: a folder of tens of gigabytes takes minutes, and every process wants it.

A digest is known again by the file's device, inode, size, and times of last change. It saves time and proves nothing: a
runner digests weights by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import platformdirs

CHUNK_BYTES = 1 << 22
SMALLEST_BYTES = 1 << 22
"""Files below are digested each time: looking one up costs as much."""
SETTLED_S = 2.0
"""A file changed more recently might change again within what its times can tell apart."""
ENTRIES = 1024


def file_digest(path: Path, cache: Path | None = None) -> str:
    """Return sha256 hex of a file, from the cache if the file is the one that was digested.

    Args:
        path: The file.
        cache: Where digests are kept; None for a file in the user's cache folder. One that cannot be read or written
            is done without.
    """
    before = path.stat()
    if before.st_size < SMALLEST_BYTES:
        return _digest(path)
    place = cache or Path(platformdirs.user_cache_dir("kakeya")) / "weights.json"
    digests, key = _read(place), _key(before)
    if key in digests:
        return digests[key]
    digest = _digest(path)
    settled = time.time() - max(before.st_mtime, before.st_ctime) > SETTLED_S
    if settled and _key(path.stat()) == key:
        _write(place, {**digests, key: digest})
    return digest


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _read(place: Path) -> dict[str, str]:
    try:
        digests = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(digests, dict):
        return {}
    return {key: digest for key, digest in digests.items() if isinstance(digest, str) and len(digest) == 64}


def _write(place: Path, digests: dict[str, str]) -> None:
    """Replace the cache as a whole, the newest entries kept."""
    newest, written = dict(list(digests.items())[-ENTRIES:]), None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as stream:
            written = Path(stream.name)
            json.dump(newest, stream)
        written.replace(place)
    except OSError:
        if written is not None:
            written.unlink(missing_ok=True)
