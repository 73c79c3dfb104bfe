"""A full-attention layer whose evicted rows are made again whenever a block attends to them.

Of every position a few numbers are kept for all layers together. A row behind the window is seen as it is made of
those, in the window as it was: a rule of positions alone, so a row in a block sees what it would have seen by itself.
Layers with pages make those that they read instead, whole, once all of their rows are behind the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.backends.caches import LayerRows, SinkWindowRows
from engine.backends.evicting import EvictingRows
from engine.backends.recurrent import RecurrentState
from engine.backends.rows import Array, Library, Rows, RowStore
from engine.backends.visibility import Visibility
from engine.errors import UsageError
from engine.restoration.elsewhere import ElsewhereRestorer, ElsewhereRows
from engine.restoration.restorers import Restorer
from engine.restoration.settings import check_layout
from engine.structure.layout import CacheLayout


class Latents:
    """What is kept of the positions of one sequence, ``[1, 1, positions, values]``, and what makes rows of it."""

    def __init__(self, restorer: Restorer, library: Library, grow_rows: int, *, settle: bool = False) -> None:
        """Start empty; ``settle`` has what is kept computed at once, where nothing else asks for it."""
        self.restorer = restorer
        self._settle = settle
        self.rows_made = 0
        """Rows that a layer was given instead of evicted ones, over all layers and blocks."""
        self._library, self._grow_rows = library, grow_rows
        self._buffer: Array = None
        self._capacity = 0

    def append(self, start: int, features: Array) -> None:
        """Keep positions from ``start`` on: captured outputs ``[rows, values]``."""
        fresh = self.restorer.latents(features)[None, None]
        end = start + int(fresh.shape[2])
        if end > self._capacity:
            self._capacity = -(-end // self._grow_rows) * self._grow_rows
            self._buffer = self._library.grown(self._buffer, fresh, 0, start, self._capacity)
        self._buffer[:, :, start:end] = fresh
        if self._settle:
            self._library.settled([self._buffer])

    def rows(self, layer: int, begin: int, end: int) -> Rows:
        """Make a layer's rows of positions [begin, end)."""
        self.rows_made += end - begin
        return self.restorer.rows(layer, self._buffer[0, 0, begin:end], begin)

    def prefix(self, layer: int, begin: int, end: int) -> Rows:
        """Make a layer's rows of positions [begin, end), as ever."""
        return self.rows(layer, begin, end)

    def measured_bytes(self) -> int:
        """Return the bytes of the buffer."""
        return 0 if self._buffer is None else self._library.size(self._buffer)

    def buffers(self) -> list[Array]:
        """Return the array itself, for a library that evaluates it when asked."""
        return [] if self._buffer is None else [self._buffer]

    def close(self) -> None:
        """Hold nothing that would have to be given back."""


class RunMaker(Protocol):
    """What makes the evicted rows of a layer, every run from the same position on."""

    def prefix(self, layer: int, begin: int, end: int) -> Rows:
        """Return a layer's rows of positions [begin, end)."""


class RestoredRows(SinkWindowRows):
    """Sink and window in memory, every other row made again."""

    def __init__(self, store: RowStore, sink: int, window: int, slack_rows: int, grow_rows: int) -> None:
        super().__init__(store, sink, window, slack_rows, grow_rows)
        self._layer = -1
        self._latents: RunMaker | None = None

    def restore(self, layer: int, latents: RunMaker) -> None:
        """Take the place of a layer whose rows are made of ``latents``."""
        self._layer, self._latents = layer, latents

    def visible(self, rows: int) -> Visibility:
        """Return what the next append of ``rows`` rows will return, and which of it each of them sees.

        Raises:
            UsageError: If rows that some of them see restored are among them.
        """
        window = self._reach + 1
        if rows > window:
            raise UsageError(
                f"a block of {rows} rows at a window of {window}: rows are restored once they are behind it. Widen the "
                "window, or draft less"
            )
        first, end = self._oldest_visible(), self._length + rows
        early, again = min(self.sink, first), (self.sink, max(self.sink, end - window))
        runs = [run for run in ((0, early), again, (first, end)) if run[1] > run[0]]
        return Visibility(tuple(runs), rows, window, self.sink, again=again if again in runs else None)

    def _between(self, end: int) -> list[Rows]:
        """Return the rows behind the window of the last new row, at position ``end - 1``, and above the sink."""
        last = end - self._reach - 1
        if last <= self.sink or self._latents is None:
            return []
        return [self._latents.prefix(self._layer, self.sink, last)]


def restore(
    caches: Sequence[LayerRows | RecurrentState],
    layout: CacheLayout,
    restorer: Restorer | ElsewhereRestorer | None,
    library: Library,
    grow_rows: int,
) -> Latents | ElsewhereRows | None:
    """Let the layers of a sequence that are restored be restored; return what is kept for that, None for nothing.

    Raises:
        SessionError: If a host elsewhere does not answer.
        UsageError: If nothing restores what the layout evicts, or not where the layout says.
    """
    if layout.rank is None:
        return None
    layers = {index: cache for index, cache in enumerate(caches) if isinstance(cache, RestoredRows | EvictingRows)}
    if not layers:
        return None
    if restorer is None or restorer.settings is not None:
        check_layout(None if restorer is None else restorer.settings, layout, list(layers))
    if restorer is None:
        return None
    _check_place(layout, restorer)
    latents: Latents | ElsewhereRows
    if isinstance(restorer, ElsewhereRestorer):
        latents = restorer.begin(layout, library, grow_rows)
        latents.expect(list(layers))
    else:
        latents = Latents(restorer, library, grow_rows)
    for index, cache in layers.items():
        cache.restore(index, latents)
    return latents


def _check_place(layout: CacheLayout, restorer: Restorer | ElsewhereRestorer) -> None:
    """Check that rows are made where the layout says.

    Raises:
        UsageError: If they are not.
    """
    if isinstance(restorer, ElsewhereRestorer) == (layout.remote is not None):
        return
    if layout.remote is None:
        raise UsageError(f"cache layout {layout}: the f_theta is served elsewhere; say +ftheta{layout.rank}@remote")
    raise UsageError(
        f"cache layout {layout}: the f_theta is loaded here; name the host that serves one: --restoration grpc:ADDRESS"
    )
