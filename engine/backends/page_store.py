"""Where evicted rows go: whole pages, each with a digest; gone with whoever opened them."""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator

from engine.errors import PageError


class PageStore(ABC):
    """Pages of equal size, written once each and read by number, of one cache in one process."""

    def __init__(self) -> None:
        self.page_bytes = 0
        self.bytes_read = 0
        self._digests: list[bytes] = []
        self._owner: int | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many pages there are."""
        return len(self._digests)

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the bytes of host memory that the store takes."""

    def claim(self) -> None:
        """Make this the store of one cache, in this process.

        Raises:
            PageError: If it is another's already.
        """
        if self._owner is not None:
            raise PageError("this store of evicted rows belongs to another session; open a store for each")
        self._owner = os.getpid()

    def write(self, page: bytes) -> None:
        """Write one more page.

        Raises:
            PageError: If the store does not take it.
        """
        self._check_ours()
        if len(page) != (self.page_bytes or len(page)):
            raise PageError(f"a page of {len(page)} bytes; expected {self.page_bytes}, as all of this store")
        self.page_bytes = len(page)
        self._put(page)
        self._digests.append(_digest(page))

    def page(self, number: int) -> bytearray:
        """Return one page; the next reading overwrites it.

        Raises:
            PageError: If it is not what was written.
        """
        self._check_ours()
        page = self._get(number)
        if page is None or _digest(page) != self._digests[number]:
            raise PageError(f"page {number} of evicted rows is not what was written; decode again from the prompt")
        self.bytes_read += len(page)
        return page

    def read(self) -> Iterator[bytearray]:
        """Yield every page in the order of writing; each is overwritten by the next.

        Raises:
            PageError: If a page is not what was written.
        """
        for number in range(len(self)):
            yield self.page(number)

    def close(self) -> None:
        """Let go of all pages; may be called again."""
        self._closed = True
        self._forget()

    def _check_ours(self) -> None:
        if self._closed:
            raise PageError("this store of evicted rows is closed; decode again from the prompt")
        if self._owner not in {None, os.getpid()}:
            raise PageError(
                f"this store of evicted rows belongs to process {self._owner}, and this is process {os.getpid()}; "
                "open a session in each process"
            )

    @abstractmethod
    def _put(self, page: bytes) -> None:
        """Store a page behind the others, or raise PageError."""

    @abstractmethod
    def _get(self, number: int) -> bytearray | None:
        """Return a page, None where it is not whole."""

    @abstractmethod
    def _forget(self) -> None:
        """Let go of all pages."""


class PageFile(PageStore):
    """Pages in a file that has no name once it is open: nothing is left of it after the process, however that ends."""

    def __init__(self) -> None:
        """Open the file.

        Raises:
            PageError: If no folder for temporary files takes it.
        """
        super().__init__()
        try:
            self._file = tempfile.TemporaryFile(prefix="kakeya-pages-", buffering=0)  # noqa: SIM115 - open as long as this
        except OSError as error:
            raise PageError(
                f"no file for evicted rows: {error.strerror}; let TMPDIR name a folder to write in"
            ) from error
        weakref.finalize(self, self._file.close)
        self._buffer = bytearray()

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the one buffer that pages are read through."""
        return len(self._buffer)

    def _put(self, page: bytes) -> None:
        try:
            written = os.pwrite(self._file.fileno(), page, len(self) * self.page_bytes)
        except OSError as error:
            raise PageError(f"cannot write evicted rows: {error.strerror}; let TMPDIR name a roomy disk") from error
        if written != len(page):
            raise PageError("cannot write evicted rows: the disk is full; let TMPDIR name a roomy disk")
        if not self._buffer:
            self._buffer = bytearray(self.page_bytes)

    def _get(self, number: int) -> bytearray | None:
        try:
            count = os.preadv(self._file.fileno(), [self._buffer], number * self.page_bytes)
        except OSError as error:
            raise PageError(
                f"cannot read evicted rows: {error.strerror}; let TMPDIR name a sound disk, and decode again from the "
                "prompt"
            ) from error
        return self._buffer if count == self.page_bytes else None

    def _forget(self) -> None:
        self._file.close()
        self._buffer = bytearray()


class PageMemory(PageStore):
    """Pages in the memory of the host, for a device with memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: list[bytearray] = []

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of all pages."""
        return sum(map(len, self._pages))

    def _put(self, page: bytes) -> None:
        self._pages.append(bytearray(page))

    def _get(self, number: int) -> bytearray | None:
        return self._pages[number]

    def _forget(self) -> None:
        self._pages.clear()


def _digest(page: bytes | bytearray) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()
