"""Evicted rows in a file without a name: whole pages, each with a digest; gone with whoever opened it."""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from collections.abc import Iterator

from engine.errors import PageError


class PageFile:
    """Pages of equal size, written once each and read one by one into one buffer.

    The file has no name once it is open: nothing is left of it after the process ends, however it ends.
    """

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.bytes_read = 0
        self._file = tempfile.TemporaryFile(prefix="kakeya-pages-", buffering=0)  # noqa: SIM115 - open as long as this
        weakref.finalize(self, self._file.close)
        self._digests: list[bytes] = []
        self._buffer = bytearray(page_bytes)

    @property
    def buffer_bytes(self) -> int:
        """Return the bytes that stay in memory however many pages there are."""
        return len(self._buffer)

    def write(self, page: bytes) -> None:
        """Write one more page.

        Raises:
            PageError: If the disk does not take it.
        """
        try:
            written = os.pwrite(self._file.fileno(), page, len(self._digests) * self.page_bytes)
        except OSError as error:
            raise PageError(f"cannot write evicted rows: {error.strerror}; let TMPDIR name a roomy disk") from error
        if written != len(page):
            raise PageError("cannot write evicted rows: the disk is full; let TMPDIR name a roomy disk")
        self._digests.append(_digest(page))

    def read(self) -> Iterator[bytearray]:
        """Yield every page in the order of writing; each is overwritten by the next.

        Raises:
            PageError: If a page is not what was written.
        """
        for number, digest in enumerate(self._digests):
            count = os.preadv(self._file.fileno(), [self._buffer], number * self.page_bytes)
            if count != self.page_bytes or _digest(self._buffer) != digest:
                raise PageError(f"page {number} of evicted rows is not what was written; decode again from the prompt")
            self.bytes_read += count
            yield self._buffer


def _digest(page: bytes | bytearray) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()
