"""Digests of files, kept from run to run: a file is read again when its inode, size or times differ."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from bridge.system.durable import write_atomically

_READ_BYTES: Final = 1 << 20


class FileDigests:
    """A cache of file digests in the runner's state."""

    def __init__(self, cache: Path) -> None:
        """Read what is known.

        Args:
            cache: the file it is kept in.
        """
        self._cache = cache
        try:
            self._known: dict[str, str] = json.loads(cache.read_bytes())
        except (OSError, ValueError):
            self._known = {}  # it is only a cache
        self._kept = dict(self._known)

    def of(self, file: Path) -> str:
        """Return the sha256 of a file's bytes.

        Raises:
            OSError: it cannot be read.
        """
        facts = file.stat()
        key = f"{file} {facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"
        if key not in self._known:
            digest = hashlib.sha256()
            with file.open("rb") as stream:
                while block := stream.read(_READ_BYTES):
                    digest.update(block)
            self._known[key] = digest.hexdigest()
        return self._known[key]

    def keep(self) -> None:
        """Write down what was read since it was opened."""
        if self._known != self._kept:
            write_atomically(self._cache, json.dumps(self._known, sort_keys=True).encode())
            self._kept = dict(self._known)
