"""A full-attention layer whose old rows leave in whole pages, to be read again: what its ways of reading share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.backends.caches import SinkWindowRows
from engine.backends.page_store import PageFile, PageMemory, PageStore
from engine.backends.rows import Array, Rows, RowStore
from engine.backends.visibility import Visibility
from engine.errors import UsageError
from engine.structure.decoder import Structure
from engine.structure.layout import CacheLayout

PAGE_ROWS = 64
"""Rows of a page where the layout does not say."""


@dataclass(frozen=True, slots=True)
class PageCounts:
    """What became of the pages of a sequence so far.

    Attributes:
        pages_moved: pages brought into pools.
        bytes_read: bytes of pages read from their stores.
        rows_shown: rows that the newest append attended to, all layers with pages together.
        pool_bytes: bytes of the pools' buffers.
        index_bytes: bytes of what pages are chosen by.
        host_bytes: held bytes in the host's memory, which no library's allocator counts: pages, or one on its way.
    """

    pages_moved: int = 0
    bytes_read: int = 0
    rows_shown: int = 0
    pool_bytes: int = 0
    index_bytes: int = 0
    host_bytes: int = 0

    def __add__(self, other: PageCounts) -> PageCounts:
        """Return the counts of both together."""
        return PageCounts(
            self.pages_moved + other.pages_moved,
            self.bytes_read + other.bytes_read,
            self.rows_shown + other.rows_shown,
            self.pool_bytes + other.pool_bytes,
            self.index_bytes + other.index_bytes,
            self.host_bytes + other.host_bytes,
        )


class RowMaker(Protocol):
    """What makes rows again that nothing keeps."""

    def rows(self, layer: int, begin: int, end: int) -> Rows:
        """Make a layer's rows of positions [begin, end)."""


class EvictingRows(SinkWindowRows):
    """Sink and newest rows in memory, older ones in pages of a store; asked with its queries before each append.

    Where rows are made again there is no store: a page is made whenever one is read.

    A page leaves as soon as no row of the window is in it, so that what is in memory follows from the length alone.
    A crop to the start of the newest append or later never reaches into a page.
    """

    def __init__(
        self,
        store: RowStore,
        layout: CacheLayout,
        sizes: tuple[int, int],
        open_store: Callable[[], PageStore] | None = None,
    ) -> None:
        """Start empty.

        Args:
            store: Where rows are kept.
            layout: Sink, window, and rows of a page.
            sizes: Slack rows of the window, and how many rows a buffer grows by.
            open_store: Opens where pages go; by default what the layout says.
        """
        super().__init__(store, layout.sink, layout.window or 1, *sizes)
        self.page_rows = PAGE_ROWS if layout.pages is None else layout.pages[0]
        self._open_store = open_store or (PageMemory if layout.host else PageFile)
        self._pages: PageStore | None = None
        self._page_shape: tuple[int, ...] = ()
        self._maker: tuple[RowMaker, int] | None = None
        self._out = 0
        """The position from which on every row is in memory; pages hold the rows from the sink up to it."""

    @property
    def page_count(self) -> int:
        """How many pages have left."""
        return max(0, self._out - self.sink) // self.page_rows

    def restore(self, layer: int, maker: RowMaker) -> None:
        """Take the place of a layer whose evicted rows nothing keeps."""
        self._maker = (maker, layer)

    @property
    def bytes_read(self) -> int:
        """Bytes of pages read so far."""
        return 0 if self._pages is None else self._pages.bytes_read

    @abstractmethod
    def ask(self, queries: Array, key_heads: int, scale: float) -> Visibility:
        """Take the queries ``[1, heads, rows, head_dim]`` of the next append; return what it will return.

        Args:
            queries: Normed and rotated.
            key_heads: How many heads the keys have.
            scale: What a product of query and key is multiplied by.
        """

    @abstractmethod
    def counts(self) -> PageCounts:
        """Return what became of the pages so far."""

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers; those of the store count where they are in the device's memory."""
        counts = self.counts()
        return super().measured_bytes() + counts.pool_bytes + counts.index_bytes + counts.host_bytes

    def host_bytes(self) -> int:
        """Return the bytes of pages in the host's memory, where that is the device's, and of a page on its way."""
        pages = self._pages
        if pages is None or not (isinstance(pages, PageFile) or self._unified()):
            return 0
        return pages.memory_bytes

    def close(self) -> None:
        """Let go of all pages."""
        if self._pages is not None:
            self._pages.close()

    def _unified(self) -> bool:
        return self._store.library.unified(self._store.buffers()[0])

    def _oldest_held(self) -> int:
        return self._out

    def _in_memory(self) -> list[tuple[Rows, int]]:
        """Return the rows in memory that are there now, each run with the position of its first: the newest first."""
        runs = [(self._store.rows(self._out - self._base, self._length - self._base), self._out)]
        early = min(self.sink, self._out)
        return [*runs, (self._first.rows(0, early), 0)] if early else runs

    def _make_room(self, rows: int, like: list[Array]) -> int:
        """Let ``rows`` more rows fit, whole pages leaving; return the physical row of the oldest one in memory."""
        begin, end = self._length, self._length + rows
        self._evict()
        if end - self._base > self._store.capacity:
            fitting = self._decode_capacity() + self.sink + self.page_rows
            capacity = end - self._out if rows > self.slack_rows else fitting
            self._store.move(like, self._out - self._base, begin - self._base, capacity)
            self._base = self._out
        return self._out - self._base

    def _evict(self) -> None:
        """Write into pages what the next append's window does not need, as far as it fills whole ones."""
        behind = max(0, self._length - self._reach) - self.sink
        end = self.sink + max(0, behind) // self.page_rows * self.page_rows
        for begin in range(max(self.sink, self._out), end, self.page_rows):
            keys, values = self._store.rows(begin - self._base, begin - self._base + self.page_rows)
            if self._maker is None:
                self._write(keys, values)
            self._out = begin + self.page_rows
            self._evicted(keys, values)

    def _write(self, keys: Array, values: Array) -> None:
        if self._pages is None:
            store = self._open_store()
            # One that another writes to is neither written to nor closed by this.
            store.claim()
            self._pages = store
            self._page_shape = tuple(int(size) for size in keys.shape)
        self._pages.write(self._store.library.packed(keys, values))

    def _evicted(self, keys: Array, values: Array) -> None:
        """Learn of a page that left."""

    def _page(self, number: int) -> Rows:
        """Return the rows of a page; the next reading may overwrite them."""
        if self._maker is not None:
            maker, layer = self._maker
            begin = self.sink + number * self.page_rows
            return maker.rows(layer, begin, begin + self.page_rows)
        if self._pages is None:
            raise IndexError(f"page {number}; none has left")
        return self._store.library.unpacked(self._pages.page(number), self._page_shape, self._store.buffers()[0])


def check_made_again(structure: Structure, layout: CacheLayout) -> None:
    """Check that a layer's projections are made of its normed input, as rows are that an f_theta makes again.

    Raises:
        UsageError: If its norms stand behind attention.
    """
    if structure.family.behind:
        raise UsageError(
            f"{layout} of model type {structure.model_type!r} cannot be decoded yet: it has norms behind attention. "
            "Use native"
        )


def check_asks(structure: Structure, layout: CacheLayout) -> None:
    """Check that the queries of a model's layers are those which are computed for rows in pages.

    Raises:
        UsageError: If it has sinks, gates, layers that share the rows of others or norms behind attention.
    """
    family = structure.family
    named = {"heads that may attend to nothing": family.sinks, "recurrent layers": family.hybrid}
    named["layers that share the rows of others"] = structure.owners < len(structure.kinds)
    named["norms behind attention"] = family.behind
    for what, there in named.items():
        if there:
            raise UsageError(
                f"{layout} of model type {structure.model_type!r} cannot be decoded yet: it has {what}. Use native"
            )
