"""A full-attention layer whose evicted rows are read page by page for every block, exactly.

A block attends to every position: to the sink and the newest rows in memory, and to the pages of a store, one after the
other, under a softmax that runs along. The library's own attention is handed the result: one row for each query, under
a mask that lets it see that row alone, so that its weight is 1 and its value comes out as it is.

With a pool, the pages that had the most attention of one block are in memory when the next one comes, and not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.backends.evicting import EvictingRows, PageCounts
from engine.backends.page_store import PageStore
from engine.backends.pages import Pool, highest
from engine.backends.rows import Array, Rows, RowStore
from engine.backends.visibility import Visibility
from engine.structure.layout import CacheLayout

Chunk = tuple[Array, Array, int]
"""Keys, values, and the position of the first of them."""


class StreamedRows(EvictingRows):
    """Sink and window in memory, every other row in pages that each append reads."""

    def __init__(
        self,
        store: RowStore,
        layout: CacheLayout,
        sizes: tuple[int, int],
        open_store: Callable[[], PageStore] | None = None,
    ) -> None:
        super().__init__(store, layout, sizes, open_store)
        self._pool = None if layout.pages is None else Pool(store.library, *layout.pages)
        self._queries: Array = None
        self._scale = 1.0
        self._mass: Array = None

    @property
    def mass(self) -> tuple[float, ...]:
        """By page the largest share of attention that a head of the newest queries of the last append gave it."""
        pages = self.page_count
        return tuple(self._mass.tolist()[-pages:]) if pages and self._mass is not None else ()

    def ask(self, queries: Array, key_heads: int, scale: float) -> Visibility:
        """Take the queries of the next append; return what it will return."""
        self._queries, self._scale = queries, scale
        heads, rows = int(queries.shape[1]), int(queries.shape[2])
        return Visibility(((self.length, self.length + rows),), rows, alone=(heads, heads // key_heads))

    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return for each query of each head one row: what attention over all positions gives."""
        start, queries, self._queries = self._length, self._queries, None
        self._keep(keys, values)
        library = self._store.library
        attended, self._mass = library.attended(queries, start, self._chunks(), self._scale)
        if self._pool is not None and self.page_count:
            self._pool.hold(highest(self.mass, self._pool.count), self._page)
            # Nothing reads it before the next block, and until then every page that moved would be held beside it.
            library.settled(self._pool.buffers())
        return library.alone(attended, int(keys.shape[1]))

    def counts(self) -> PageCounts:
        """Return what became of the pages so far."""
        pool = self._pool
        return PageCounts(
            pages_moved=0 if pool is None else pool.moved,
            bytes_read=self.bytes_read,
            rows_shown=self._length,
            pool_bytes=0 if pool is None else pool.measured_bytes(),
            host_bytes=self.host_bytes(),
        )

    def _chunks(self) -> Iterator[Chunk]:
        """Yield all rows: the newest first, which every query sees some of, and the pages in order last."""
        for (keys, values), first in self._in_memory():
            yield keys, values, first
        held = {} if self._pool is None else self._pool.places
        for number in range(self.page_count):
            keys, values = self._pool.page(number) if self._pool and number in held else self._page(number)
            yield keys, values, self.sink + number * self.page_rows
