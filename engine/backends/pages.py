"""A full-attention layer that shows a fixed pool of its evicted pages, chosen anew for each block.

A row sees the sink, the chosen pages and every row in memory. Which pages a block sees is chosen by its own queries
(``codes``) or by age (``recent``): so, unlike a window, what a row sees depends on the block it comes in. Pages come
into the pool bit for bit as they left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.backends.evicting import EvictingRows, PageCounts
from engine.backends.page_store import PageStore
from engine.backends.rows import Array, Library, PageIndex, Rows, RowStore
from engine.backends.visibility import Visibility
from engine.structure.layout import CacheLayout

INDEX_GROW = 64
"""How many entries an index grows by."""


class Pool:
    """So many pages at fixed places."""

    def __init__(self, library: Library, page_rows: int, count: int) -> None:
        self.page_rows, self.count = page_rows, count
        self.places: dict[int, int] = {}
        """The place of each page that is here."""
        self.moved = 0
        self._store = RowStore(library)

    def hold(self, wanted: Sequence[int], page: Callable[[int], Rows]) -> None:
        """Hold these pages, at least as many as before, and no others; ``page`` reads one that is not here."""
        # What is overwritten is forgotten first: a page that cannot be read must leave no other under its number.
        self.places = here = {number: place for number, place in self.places.items() if number in set(wanted)}
        free = [place for place in range(len(wanted)) if place not in set(here.values())]
        for number, place in zip((number for number in wanted if number not in here), free, strict=True):
            keys, values = page(number)
            parts = self._store.encode(keys, values)
            if self._store.capacity == 0:
                # A write over a whole MLX array would make it a view that keeps what it came from alive.
                self._store.move(parts, 0, 0, self.page_rows * self.count + 1)
            self._store.write(parts, place * self.page_rows, (place + 1) * self.page_rows)
            here[number] = place
            self.moved += 1

    def page(self, number: int) -> Rows:
        """Return the rows of a page that is here."""
        begin = self.places[number] * self.page_rows
        return self._store.rows(begin, begin + self.page_rows)

    def rows(self) -> Rows:
        """Return the rows of all pages, by place."""
        return self._store.rows(0, len(self.places) * self.page_rows)

    def by_place(self) -> list[int]:
        """Return the pages in the order of ``rows``."""
        return sorted(self.places, key=self.places.__getitem__)

    def measured_bytes(self) -> int:
        """Return the bytes of the buffers."""
        return self._store.measured_bytes()

    def buffers(self) -> list[Array]:
        """Return the arrays themselves."""
        return self._store.buffers()


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Return the indices of the ``count`` highest scores in order; of equal ones the later."""
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], -index))
    return sorted(best[:count])


class Chooser(Protocol):
    """Says which pages are worth showing."""

    def learn(self, keys: Array) -> None:
        """Take the keys ``[1, heads, rows, head_dim]`` of one page more."""

    def scores(self, queries: Array, held: Array, scale: float, pages: int) -> Sequence[float]:
        """Return a score for each page: what queries may find there, beside the keys ``held`` in memory."""

    def buffers(self) -> list[Array]:
        """Return the arrays it remembers pages by."""


class Newest:
    """Prefers the newest pages: the control."""

    def learn(self, keys: Array) -> None:
        """Remember nothing."""

    def scores(self, queries: Array, held: Array, scale: float, pages: int) -> Sequence[float]:
        """Return the numbers of the pages."""
        del queries, held, scale
        return range(pages)

    def buffers(self) -> list[Array]:
        """Return nothing."""
        return []


class Indexed:
    """Asks the queries, over an index of the keys of each page."""

    def __init__(self, library: Library, index: PageIndex) -> None:
        self._index = index
        self._store = RowStore(library)
        self._used = self._pages = 0

    def learn(self, keys: Array) -> None:
        """Add one page to the index."""
        parts = list(self._index.encode(keys))
        end = self._used + int(parts[0].shape[2])
        if end > self._store.capacity:
            self._store.move(parts, 0, self._used, -(-end // INDEX_GROW) * INDEX_GROW)
        self._store.write(parts, self._used, end)
        self._used, self._pages = end, self._pages + 1

    def scores(self, queries: Array, held: Array, scale: float, pages: int) -> Sequence[float]:
        """Return by page the largest share of attention that a head of a query is expected to give it."""
        parts = [buffer[:, :, : self._used] for buffer in self._store.buffers()]
        return self._index.mass(queries, parts, held, pages, scale)

    def buffers(self) -> list[Array]:
        """Return the arrays of the index."""
        return self._store.buffers()


class PagedRows(EvictingRows):
    """Sink, window and a pool of chosen pages in memory, every other row in pages of a store."""

    def __init__(
        self,
        store: RowStore,
        layout: CacheLayout,
        sizes: tuple[int, int],
        open_store: Callable[[], PageStore] | None = None,
    ) -> None:
        super().__init__(store, layout, sizes, open_store)
        self._pool = Pool(store.library, *(layout.pages or (self.page_rows, 1)))
        self._chooser: Chooser = Newest()
        if layout.policy in store.library.indexes:
            self._chooser = Indexed(store.library, store.library.indexes[layout.policy])
        self._rows_shown = 0

    @property
    def shown_pages(self) -> tuple[int, ...]:
        """The pages in the pool, in order."""
        return tuple(sorted(self._pool.places))

    def ask(self, queries: Array, key_heads: int, scale: float) -> Visibility:
        """Bring what the queries of the next append want into the pool; return what the append will return."""
        del key_heads
        self._evict()
        if self.page_count:
            held = [keys for (keys, _), _ in self._in_memory()]
            joined = held[0] if len(held) == 1 else self._store.library.joined(held)
            scores = self._chooser.scores(queries, joined, scale, self.page_count)
            self._pool.hold(highest(scores, self._pool.count), self._page)
        return self.visible(int(queries.shape[2]))

    def visible(self, rows: int) -> Visibility:
        """Return what the next append of ``rows`` rows will return, and which of it each of them sees."""
        early = min(self.sink, self._out)
        firsts = [self.sink + number * self.page_rows for number in self._pool.by_place()]
        pages = [(first, first + self.page_rows) for first in firsts]
        newest = (self._out, self._length + rows)
        return Visibility((*([(0, early)] if early else []), *pages, newest), rows)

    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return the sink's rows, those of the pool, and all in memory up to these."""
        recent = self._keep(keys, values)
        early = min(self.sink, self._out)
        parts = [self._first.rows(0, early)] if early else []
        parts += [self._pool.rows()] if self._pool.places else []
        self._rows_shown = early + len(self._pool.places) * self.page_rows + self._length - self._out
        if not parts:
            return recent
        joined = self._store.library.joined
        return joined([part[0] for part in (*parts, recent)]), joined([part[1] for part in (*parts, recent)])

    def counts(self) -> PageCounts:
        """Return what became of the pages so far."""
        size = self._store.library.size
        return PageCounts(
            pages_moved=self._pool.moved,
            bytes_read=self.bytes_read,
            rows_shown=self._rows_shown,
            pool_bytes=self._pool.measured_bytes(),
            index_bytes=sum(size(buffer) for buffer in self._chooser.buffers()),
            host_bytes=self.host_bytes(),
        )

    def buffers(self) -> list[Array]:
        """Return the arrays themselves."""
        return [*super().buffers(), *self._pool.buffers(), *self._chooser.buffers()]

    def _evicted(self, keys: Array, values: Array) -> None:
        del values
        self._chooser.learn(keys)
