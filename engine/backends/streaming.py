"""A full-attention layer whose evicted rows are read page by page for every block, exactly.

A block attends to every position: to the sink and the newest rows in memory, and to the pages of a file, one after the
other through one buffer, under a softmax that runs along. The library's own attention is handed the result: one row for
each query, under a mask that lets it see that row alone, so that its weight is 1 and its value comes out as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.backends.caches import SinkWindowRows
from engine.backends.page_store import PageFile
from engine.backends.rows import Array, Rows, RowStore
from engine.backends.visibility import Visibility
from engine.errors import UsageError
from engine.structure.decoder import Structure

PAGE_ROWS = 64
Chunk = tuple[Array, Array, int]
"""Keys, values, and the position of the first of them."""


class StreamedRows(SinkWindowRows):
    """Sink and window in memory, every other row in pages; ``ask`` comes before each append."""

    def __init__(self, store: RowStore, sink: int, window: int, slack_rows: int, grow_rows: int) -> None:
        super().__init__(store, sink, window, slack_rows, grow_rows)
        self._queries: Array = None
        self._scale = 1.0
        self._pages: PageFile | None = None
        self._page_shape: tuple[int, ...] = ()

    @property
    def bytes_read(self) -> int:
        """Bytes of pages read so far."""
        return 0 if self._pages is None else self._pages.bytes_read

    def ask(self, queries: Array, key_heads: int, scale: float) -> Visibility:
        """Take the queries ``[1, heads, rows, head_dim]`` of the next append; return what it will return.

        Args:
            queries: Normed and rotated.
            key_heads: How many heads the keys have.
            scale: What a product of query and key is multiplied by.
        """
        self._queries, self._scale = queries, scale
        heads, rows = int(queries.shape[1]), int(queries.shape[2])
        return Visibility(((self.length, self.length + rows),), rows, alone=(heads, heads // key_heads))

    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return for each query of each head one row: what attention over all positions gives."""
        start, queries, self._queries = self._length, self._queries, None
        super().append(keys, values)
        library = self._store.library
        attended = library.attended(queries, start, self._chunks(), self._scale)
        return library.alone(attended, int(keys.shape[1]))

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return super().measured_bytes() + (0 if self._pages is None else self._pages.buffer_bytes)

    def _chunks(self) -> Iterator[Chunk]:
        """Yield all rows: the newest first, which every query sees some of."""
        yield *self._store.rows(0, self._length - self._base), self._base
        early = min(self.sink, self._base)
        if early:
            yield *self._first.rows(0, early), 0
        if self._pages is None:
            return
        for number, page in enumerate(self._pages.read()):
            keys, values = self._store.library.unpacked(page, self._page_shape, self._store.buffers()[0])
            yield keys, values, self.sink + number * PAGE_ROWS

    def _make_room(self, rows: int, like: list[Array]) -> int:
        """Let ``rows`` more rows fit, whole pages leaving; return the physical row of the oldest one in reach."""
        begin, end = self._length, self._length + rows
        first = max(0, begin - self._reach)
        if end - self._base > self._store.capacity:
            whole = max(0, first - self.sink) // PAGE_ROWS * PAGE_ROWS
            base = max(self._base, self.sink + whole if whole else 0)
            self._evict(base)
            fitting = self._decode_capacity() + self.sink + PAGE_ROWS
            capacity = end - base if rows > self.slack_rows else fitting
            self._store.move(like, base - self._base, begin - self._base, capacity)
            self._base = base
        return first - self._base

    def _evict(self, base: int) -> None:
        """Write the rows before position ``base`` into pages."""
        for begin in range(max(self.sink, self._base), base, PAGE_ROWS):
            keys, values = self._store.rows(begin - self._base, begin - self._base + PAGE_ROWS)
            page = self._store.library.packed(keys, values)
            if self._pages is None:
                self._pages, self._page_shape = PageFile(len(page)), tuple(int(size) for size in keys.shape)
            self._pages.write(page)


def check_streams(structure: Structure) -> None:
    """Check that the attention of a model is that which is computed over streamed rows.

    Raises:
        UsageError: If it has sinks, gates or layers that share the rows of others.
    """
    family = structure.family
    named = {"heads that may attend to nothing": family.sinks, "recurrent layers": family.hybrid}
    named["layers that share the rows of others"] = structure.owners < len(structure.kinds)
    for what, there in named.items():
        if there:
            raise UsageError(
                f"+stream of model type {structure.model_type!r} cannot be decoded yet: it has {what}. Use native"
            )
