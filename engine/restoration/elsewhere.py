"""Evicted rows that a host elsewhere makes again, with the arrays of any library.

Hidden states go there as they come, rows come back before the target's norms and rotation. Where every evicted row is
shown, each comes once and is held; pages come whenever one is read, and a pool alone holds them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.backends.rows import Array, Library, Rows, RowStore
from engine.restoration.restorers import Finish, full_widths
from engine.restoration.settings import RestorationSettings
from engine.structure.layout import EXACT, CacheLayout


class RowStream(Protocol):
    """One sequence as its host is asked for it."""

    def show(self, start: int, count: int, data: bytes) -> None:
        """Send hidden states of positions from ``start`` on; never waits."""

    def rows(self, layers: Sequence[int], begin: int, end: int) -> list[tuple[int, bytearray]]:
        """Return for each run of positions its length and its bytes: the first layer's keys, its values, and on."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class ElsewhereRestorer:
    """An f_theta that is served.

    Attributes:
        settings: of its config.
        capture: the target layers that it reads.
        open: begins a sequence whose rows are sent in a dtype.
        packed: makes bytes of arrays one after the other, in a dtype.
        unpacked: makes an array of bytes, a shape and the name of a dtype.
        own_dtype: the dtype of the target's rows, by name.
        cast: brings an array to that dtype.
        finish: the target's.
    """

    settings: RestorationSettings
    capture: tuple[int, ...]
    open: Callable[[str], RowStream]
    packed: Callable[[list[Any], str], bytes]
    unpacked: Callable[[bytearray, tuple[int, int], str], Array]
    own_dtype: str
    cast: Callable[[Array], Array]
    finish: Finish

    def begin(self, layout: CacheLayout, library: Library, grow_rows: int) -> ElsewhereRows:
        """Begin a sequence on a layout that names how rows are sent."""
        row_format = self.own_dtype if layout.remote in {None, EXACT} else str(layout.remote)
        return ElsewhereRows(self, row_format, library, grow_rows)

    def finished(self, row_format: str, layers: Sequence[int], first: int, count: int, data: bytearray) -> list[Rows]:
        """Return the rows of layers, made of the bytes of ``count`` positions from ``first`` on."""
        begin, made = 0, []
        widths = [self.settings.layers[layer] for layer in layers]
        value_bytes = len(data) // (count * sum(each.keys + each.values for each in widths))
        for layer, width in zip(layers, widths, strict=True):
            sides = []
            for size in (width.keys, width.values):
                end = begin + count * size * value_bytes
                sides.append(self.cast(self.unpacked(data[begin:end], (count, size), row_format)))
                begin = end
            keys, values = sides
            made.append(self.finish(layer, keys, values, range(first, first + count)))
        return made


def elsewhere(served: Any, backend: Any, target: Any, cast: Callable[[Array], Array]) -> ElsewhereRestorer:
    """Return a served f_theta for a target of this process, once it is known to belong to it.

    Args:
        served: what its host offers, and what opens a sequence there.
        backend: whose target it is.
        target: the target.
        cast: brings an array to the target's device and dtype.

    Raises:
        ModelMismatchError: If it was fitted for another target.
    """
    offer = served.offer
    offer.check_fits(target.info, full_widths(target.family))
    return ElsewhereRestorer(
        settings=offer.settings,
        capture=offer.capture,
        open=served.open,
        packed=backend.packed,
        unpacked=backend.unpacked,
        own_dtype=backend.row_dtype(target),
        cast=cast,
        finish=target.family.finish,
    )


class ElsewhereRows:
    """The rows of one sequence whose evicted ones a host makes."""

    def __init__(self, restorer: ElsewhereRestorer, row_format: str, library: Library, grow_rows: int) -> None:
        """Begin.

        Raises:
            SessionError: If the host is away, or refuses.
        """
        self.restorer = restorer
        self.rows_made = 0
        """Rows that a layer was given instead of evicted ones, over all layers and blocks."""
        self._row_format, self._grow_rows = row_format, grow_rows
        self._layers = tuple(sorted(restorer.settings.layers))
        self._stores = {layer: RowStore(library) for layer in self._layers}
        self._first = self._count = 0
        self._stream = restorer.open(row_format)
        # Not every sequence is closed: whoever hosts it would keep it until its lease runs out.
        weakref.finalize(self, self._stream.close)

    def expect(self, layers: Sequence[int]) -> None:
        """Learn which layers are restored; rows of others are not asked for."""
        self._layers = tuple(sorted(layers))

    def append(self, start: int, features: Array) -> None:
        """Show positions from ``start`` on: captured outputs ``[rows, values]``.

        Raises:
            SessionError: If the host has gone.
        """
        self._stream.show(start, int(features.shape[0]), self.restorer.packed([features], self._row_format))
        self._count = min(self._count, max(0, start - self._first))

    def rows(self, layer: int, begin: int, end: int) -> Rows:
        """Ask for a layer's rows of positions [begin, end), and hold none of them.

        Raises:
            SessionError: If they do not come.
        """
        self.rows_made += end - begin
        (run,) = self._stream.rows((layer,), begin, end)
        return self.restorer.finished(self._row_format, (layer,), begin, *run)[0]

    def prefix(self, layer: int, begin: int, end: int) -> Rows:
        """Return a layer's rows of positions [begin, end), where a sequence begins every such run at one position.

        Raises:
            SessionError: If rows that are not held yet do not come.
        """
        self._first = begin
        if end - begin > self._count:
            self._fetch(end)
        self.rows_made += end - begin
        return self._stores[layer].rows(0, end - begin)

    def measured_bytes(self) -> int:
        """Return the bytes of the rows that are held."""
        return sum(store.measured_bytes() for store in self._stores.values())

    def buffers(self) -> list[Array]:
        """Return the arrays themselves, for a library that evaluates them when asked."""
        return [part for store in self._stores.values() for part in store.buffers()]

    def close(self) -> None:
        """End the stream; may be called again."""
        self._stream.close()

    def _fetch(self, end: int) -> None:
        """Have every layer's rows up to a position; they are held together or not at all."""
        position = self._first + self._count
        runs = self._stream.rows(self._layers, position, end)
        for count, data in runs:
            made = self.restorer.finished(self._row_format, self._layers, position, count, data)
            for layer, (keys, values) in zip(self._layers, made, strict=True):
                self._hold(self._stores[layer], keys, values, count)
            self._count, position = self._count + count, position + count

    def _hold(self, store: RowStore, keys: Array, values: Array, count: int) -> None:
        parts, end = store.encode(keys, values), self._count + count
        if end > store.capacity:
            capacity = -(-end // self._grow_rows) * self._grow_rows
            store.move(parts, 0, self._count, capacity)
        store.write(parts, self._count, end)
