"""Which rows the cache of a layer keeps and shows, in any array library; all crop to an absolute length.

Rows stay in temporal order, so that a crop is arithmetic on lengths and never moves a row. A backend adds its masks and
the names its attention modules call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from engine.backends.rows import Array, Rows, RowStore
from engine.backends.visibility import Visibility
from engine.errors import CacheCropError


class LayerRows(ABC):
    """What every cache of a layer has: a store, a window (None without one) and the sink's rows (0 without one)."""

    def __init__(self, store: RowStore, window: int | None, grow_rows: int, sink: int = 0) -> None:
        self.window = window
        self.sink = sink
        self._grow_rows = grow_rows
        self._store = store
        self._length = self._base = self._floor = 0

    @property
    def length(self) -> int:
        """Positions seen so far, evicted ones included."""
        return self._length

    @property
    def offset(self) -> int:
        """Positions seen so far, under the name that mlx-lm's attention modules read."""
        return self._length

    def visible(self, rows: int) -> Visibility:
        """Return what the next append of ``rows`` rows will return, and which of it each of them sees."""
        return Visibility(((self._oldest_visible(), self._length + rows),), rows, self.window)

    def _oldest_visible(self) -> int:
        """Return the oldest position that a row appended next sees in its window."""
        return 0 if self.window is None else max(0, self._length - self.window + 1)

    @abstractmethod
    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return those the new queries may attend to, oldest first."""

    @abstractmethod
    def check_crop(self, length: int) -> None:
        """Check that a crop to ``length`` can be had.

        Raises:
            CacheCropError: If rows needed to be exact are gone, or ``length`` is beyond what was seen.
        """

    def crop(self, length: int) -> None:
        """Forget positions >= ``length``.

        Raises:
            CacheCropError: If rows needed to be exact are gone, or ``length`` is beyond what was seen.
        """
        self.check_crop(length)
        self._length = length

    def rewind(self, length: int) -> None:
        """Forget positions >= ``length``, however far back, where every row that later ones may see is still here.

        Raises:
            CacheCropError: If one is gone, or ``length`` is beyond what was seen.
        """
        self.crop(length)

    @property
    def plain(self) -> bool:
        """Whether rows are stored as attention sees them."""
        return self._store.plain

    def lend(self, rows: int) -> tuple[int, tuple[Array, ...]]:
        """Return the position of the buffers' first row, and both buffers with room for ``rows`` more rows."""
        self._make_room(rows, self._store.buffers())
        return self._base, tuple(self._store.buffers())

    def take_back(self, buffers: tuple[Array, ...], rows: int) -> None:
        """Go on with buffers into which ``rows`` more rows were written."""
        self._store.replace(buffers)
        self._floor, self._length = self._length, self._length + rows

    def blank(self, end: int) -> None:
        """Write zeros over the rows from the length on up to position ``end``, which were forgotten."""
        self._store.blank(self._length - self._base, end - self._base)

    @abstractmethod
    def _make_room(self, rows: int, like: list[Array]) -> int:
        """Let ``rows`` more rows fit and return the physical row of the oldest one they may see."""

    def update_and_fetch(self, keys: Array, values: Array) -> Rows:
        """Append rows, under the name that mlx-lm's attention modules call."""
        return self.append(keys, values)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._store.measured_bytes()

    def buffers(self) -> list[Array]:
        """Return the arrays themselves, for a library that evaluates them when asked."""
        return self._store.buffers()


class FullRows(LayerRows):
    """Every row is kept; with a ``window`` the attention still sees only the rows it may."""

    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return those the new queries may attend to, oldest first."""
        begin, end = self._length, self._length + int(keys.shape[2])
        parts = self._store.encode(keys, values)
        first = self._make_room(end - begin, parts)
        self._store.write(parts, begin, end)
        self._length = end
        return self._store.rows(first, end)

    def _make_room(self, rows: int, like: list[Array]) -> int:
        """Let ``rows`` more rows fit and return the oldest one they may see."""
        end = self._length + rows
        held = self._store.capacity
        if end > held:
            doubled = 2 * held if self._store.plain and self._store.library.doubles else 0
            self._store.move(like, 0, self._length, max(doubled, -(-end // self._grow_rows) * self._grow_rows))
        return self._oldest_visible()

    def check_crop(self, length: int) -> None:
        """Check that a crop to ``length`` can be had; any earlier one is exact because every row is kept.

        Raises:
            CacheCropError: If ``length`` is negative or beyond what was seen.
        """
        if not 0 <= length <= self._length:
            raise CacheCropError(f"crop to {length} positions; expected 0 <= length <= {self._length}")

    def held(self) -> Rows:
        """Return every row, for a study of what storing them otherwise would change."""
        return self._store.rows(0, self._length)

    def kept(self) -> tuple[int, Rows]:
        """Return position 0 and every row."""
        return 0, self.held()

    def resume(self, first: int, rows: Rows, floor: int) -> None:
        """Begin, while empty, with every row; there is no position before ``first``, which is 0."""
        del first, floor
        self.append(*rows)


class WindowRows(LayerRows):
    """A sliding layer: the rows its newest append could see, that append, and a little slack.

    Physical row r holds position ``_base + r``. Rows leave only when an append finds no room, and never one that the
    append itself may attend to, so a crop to its start or later needs no row that is gone.
    """

    def __init__(self, store: RowStore, window: int, slack_rows: int, grow_rows: int, sink: int = 0) -> None:
        super().__init__(store, window, grow_rows, sink)
        self._reach = window - 1
        self.slack_rows = slack_rows
        self._begin = 0

    def begin(self, position: int) -> None:
        """Begin, while empty, at a later position than 0: there are no rows before it."""
        self._begin = self._base = self._floor = self._length = position

    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return the last ``window - 1`` earlier rows with them, oldest first."""
        begin, end = self._length, self._length + int(keys.shape[2])
        parts = self._store.encode(keys, values)
        first = self._make_room(end - begin, parts)
        self._store.write(parts, begin - self._base, end - self._base)
        self._floor, self._length = begin, end
        return self._store.rows(first, end - self._base)

    def room(self, rows: int, keys: Array, values: Array) -> Rows:
        """Return views of the rows an append of ``rows`` could see, ending in ``rows`` free ones.

        Whatever is written into the free rows without an append is not counted and is overwritten later. ``keys`` and
        ``values`` only tell the shape and dtype of a row, which must be stored as it is.
        """
        first = self._make_room(rows, self._store.encode(keys, values))
        return self._store.rows(first, self._length + rows - self._base)

    def kept(self) -> tuple[int, Rows]:
        """Return the rows that a crop to any allowed length may still need, and the position of the first."""
        first = max(self._begin, self._floor - self._reach)
        return first, self._store.rows(first - self._base, self._length - self._base)

    def resume(self, first: int, rows: Rows, floor: int) -> None:
        """Begin, while empty, with rows of positions ``first`` on; crops may reach back to ``floor``."""
        parts, count = self._store.encode(*rows), int(rows[0].shape[2])
        self._store.move(parts, 0, 0, count)
        self._store.write(parts, 0, count)
        self._base, self._floor, self._length = first, floor, first + count

    def _oldest_held(self) -> int:
        """Return the position from which on every row is in the buffer."""
        return self._base

    def _make_room(self, rows: int, like: list[Array]) -> int:
        """Let ``rows`` more rows fit and return the physical row of the oldest one they may see."""
        begin, end = self._length, self._length + rows
        first = max(self._begin, begin - self._reach)
        if end - self._base > self._store.capacity:
            capacity = end - first if rows > self.slack_rows else self._decode_capacity()
            self._store.move(like, first - self._base, begin - self._base, capacity)
            self._base = first
        return first - self._base

    def _decode_capacity(self) -> int:
        """Return how many rows to hold while decoding; a prefill chunk gets exactly its own.

        It follows from the length alone, so that equal work is held in equal bytes however it was split into blocks.
        """
        held = -(-(self._length + 1) // self._grow_rows) * self._grow_rows
        return min(held, self._reach) + 2 * self.slack_rows

    def check_crop(self, length: int) -> None:
        """Check that a crop to ``length`` can be had.

        Raises:
            CacheCropError: If ``length`` lies before the start of the last append, or beyond what was seen.
        """
        if not self._floor <= length <= self._length:
            raise CacheCropError(
                f"crop of a sliding cache to {length} positions; expected {self._floor} <= length <= {self._length}: "
                "rows older than the last append are gone"
            )

    def rewind(self, length: int) -> None:
        """Forget positions >= ``length`` where the window before it is still here.

        Raises:
            CacheCropError: If a row of it is gone, or ``length`` is beyond what was seen.
        """
        if self._begin <= length <= self._length and max(self._begin, length - self._reach) >= self._oldest_held():
            self._floor = min(self._floor, length)
        self.crop(length)


class SinkWindowRows(WindowRows):
    """The first ``sink`` positions for ever, and a window of the newest: a full-attention layer in bounded memory.

    A query at position p sees the positions below ``sink`` and those after p - ``window``: a rule of positions alone,
    so a row in a block sees exactly what it would have seen decoded by itself. Rows keep their own rotary positions.
    """

    def __init__(self, store: RowStore, sink: int, window: int, slack_rows: int, grow_rows: int) -> None:
        super().__init__(store, window, slack_rows, grow_rows, sink)
        self._first = RowStore(store.library)

    def visible(self, rows: int) -> Visibility:
        """Return what the next append of ``rows`` rows will return, and which of it each of them sees."""
        first, end = self._oldest_visible(), self._length + rows
        early = min(self.sink, first)
        return Visibility((*([(0, early)] if early else []), (first, end)), rows, self.window, self.sink)

    def append(self, keys: Array, values: Array) -> Rows:
        """Append rows and return the sink's that left the window, those between, then the window's, oldest first."""
        shown = min(self.sink, self._oldest_visible())
        recent, joined = self._keep(keys, values), self._store.library.joined
        parts = [*([self._first.rows(0, shown)] if shown else []), *self._between(self._length), recent]
        if len(parts) == 1:
            return recent
        return joined([part[0] for part in parts]), joined([part[1] for part in parts])

    def _between(self, end: int) -> list[Rows]:
        """Return what is shown between sink and window once positions up to ``end`` are appended."""
        del end
        return []

    def _keep(self, keys: Array, values: Array) -> Rows:
        """Append rows, to the sink too while it is open; return the window's rows and these, oldest first."""
        begin = self._length
        if begin < self.sink:
            rows = self.sink - begin
            early = self._first.encode(keys[..., :rows, :], values[..., :rows, :])
            if self._first.capacity == 0:
                # A write over a whole MLX array would make it a view that keeps all the prompt's rows alive.
                self._first.move(early, 0, 0, self.sink + 1)
            self._first.write(early, begin, begin + int(early[0].shape[2]))
        return super().append(keys, values)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return self._first.measured_bytes() + super().measured_bytes()

    def buffers(self) -> list[Array]:
        """Return the arrays themselves."""
        return [*self._first.buffers(), *super().buffers()]
