"""Rows of keys and values in growing buffers, stored in the parts of a codec; arrays are a backend's own.

Every array has the axes ``[1, heads, rows, …]``. Rows are stored one by one, so that dropping the last of them is
arithmetic on lengths in every codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.backends.lattices import LATTICES, Arithmetic, LatticeCodes
from engine.structure.layout import CacheLayout
from engine.types import StoredError

CODES_PER_BYTE = {8: 1, 4: 2}
ASKING_ROWS = 32
"""How many of the newest queries say which pages are wanted: a block, or the end of a chunk of a prompt."""
Array = Any
Rows = tuple[Array, Array]
"""Keys and values."""


class Codec(Protocol):
    """How a row is stored."""

    def encode(self, rows: Array) -> tuple[Array, ...]:
        """Return the arrays to store; each has the axes ``[1, heads, rows, …]``."""

    def decode(self, parts: tuple[Array, ...]) -> Array:
        """Return the rows that attention sees."""


class PlainRows:
    """Store rows uncoded, in the dtype the model computes in."""

    def encode(self, rows: Array) -> tuple[Array, ...]:
        """Return the rows."""
        return (rows,)

    def decode(self, parts: tuple[Array, ...]) -> Array:
        """Return the rows."""
        return parts[0]


class PageIndex(Protocol):
    """What the keys of evicted pages are remembered by, in a fraction of their bytes."""

    def encode(self, keys: Array) -> tuple[Array, ...]:
        """Return the arrays that stand for the keys ``[1, heads, rows, head_dim]`` of one page."""

    def mass(self, queries: Array, parts: Sequence[Array], held: Array, pages: int, scale: float) -> Sequence[float]:
        """Return by page the largest share of attention that a head of the newest queries is expected to give it.

        Args:
            queries: Normed and rotated ``[1, query heads, rows, head_dim]``.
            parts: The arrays of all pages, one after the other along the rows.
            held: Keys that the queries see beside the pages.
            pages: How many pages there are.
            scale: What a product of query and key is multiplied by.
        """


@dataclass(frozen=True)
class Library:
    """What buffers need of an array library.

    Attributes:
        grown: a buffer of ``capacity`` rows that starts with rows [begin, end) of ``old`` (None for none): called with
            ``old``, an array of the same kind, begin, end, capacity.
        joined: arrays one after the other along the rows.
        size: the bytes an array really holds.
        affine: the codec of so many bits with groups of so many values.
        arithmetic: what codes of a lattice are made with.
        packed: keys and values as bytes.
        unpacked: those bytes as keys and values of a shape, in the dtype and on the device of an array.
        unified: whether an array lies in the memory of the host.
        attended: what queries from a position on make of chunks of rows (keys, values, first position) that together
            are all they see, under a softmax that runs along: ``[1, heads, rows, head_dim]``, and by chunk the largest
            share of attention that a head of the newest ``ASKING_ROWS`` queries gave it.
        settled: has arrays computed now, so that what they are made of is let go.
        alone: such results as rows of so many key heads, one for each query.
        indexes: by policy what the keys of evicted pages are remembered by.
        doubles: whether a buffer of rows stored as they are doubles when it is full: what attends to it is not traced
            for its size, so that fewer copies are worth the room.
    """

    grown: Callable[[Array | None, Array, int, int, int], Array]
    joined: Callable[[list[Array]], Array]
    size: Callable[[Array], int]
    affine: Callable[[int, int], Codec]
    arithmetic: Arithmetic
    packed: Callable[[Array, Array], bytes]
    unpacked: Callable[[bytearray, tuple[int, ...], Array], Rows]
    unified: Callable[[Array], bool]
    attended: Callable[[Array, int, Iterable[tuple[Array, Array, int]], float], tuple[Array, Array]]
    settled: Callable[[list[Array]], None]
    alone: Callable[[Array, int], Rows]
    indexes: Mapping[str, PageIndex]
    doubles: bool = False

    def codec(self, layout: CacheLayout, head_dim: int) -> Codec:
        """Return how ``layout`` stores the rows of heads of ``head_dim`` values."""
        if layout.bits is None:
            return PlainRows()
        group = layout.group_of(head_dim)
        if layout.lattice is None:
            return self.affine(layout.bits, group)
        return LatticeCodes(LATTICES[layout.lattice], layout.bits, group, self.arithmetic)


class RowStore:
    """One buffer of keys and one of values, each in the parts of a codec, with room for ``capacity`` rows."""

    def __init__(self, library: Library, codec: Codec | None = None) -> None:
        self.library = library
        # Rows stored as they are, one array a side, skip the codec: this runs for every layer of every step.
        self._codec = None if codec is None or isinstance(codec, PlainRows) else codec
        self._parts: list[Array] = []
        self.capacity = 0

    def encode(self, keys: Array, values: Array) -> list[Array]:
        """Return what ``move`` and ``write`` take."""
        if self._codec is None:
            return [keys, values]
        return [*self._codec.encode(keys), *self._codec.encode(values)]

    def move(self, like: list[Array], begin: int, end: int, capacity: int) -> None:
        """Go on with new buffers of ``capacity`` rows that start with the present rows [begin, end)."""
        old = self._parts or [None] * len(like)
        pairs = zip(old, like, strict=True)
        self._parts = [self.library.grown(was, part, begin, end, capacity) for was, part in pairs]
        self.capacity = capacity

    def write(self, parts: list[Array], begin: int, end: int) -> None:
        """Write encoded rows into rows [begin, end)."""
        # Leading axes by name, here and below: an ellipsis takes MLX longer to read, at every layer of every step.
        for buffer, part in zip(self._parts, parts, strict=True):
            buffer[:, :, begin:end] = part

    @property
    def plain(self) -> bool:
        """Whether rows are stored as they are, one array a side."""
        return self._codec is None

    def replace(self, parts: Sequence[Array]) -> None:
        """Go on with other buffers of as many rows."""
        self._parts = list(parts)

    def blank(self, begin: int, end: int) -> None:
        """Write zeros into rows [begin, end)."""
        for buffer in self._parts:
            buffer[:, :, begin:end] = 0

    def rows(self, begin: int, end: int) -> Rows:
        """Return keys and values of rows [begin, end): views of the buffers where rows are stored as they are."""
        if self._codec is None:
            keys, values = self._parts
            return keys[:, :, begin:end], values[:, :, begin:end]
        shown = tuple(buffer[:, :, begin:end] for buffer in self._parts)
        half = len(shown) // 2
        return self._codec.decode(shown[:half]), self._codec.decode(shown[half:])

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(self.library.size(buffer) for buffer in self._parts)

    def buffers(self) -> list[Array]:
        """Return the arrays themselves, for a library that evaluates them when asked."""
        return list(self._parts)


def stored_errors(
    caches: Iterable[Rows], layout: CacheLayout, library: Library, squared: Callable[[Array, Array | None], float]
) -> tuple[StoredError, ...]:
    """Return by layer and side what storing its rows in ``layout`` changes.

    Args:
        caches: Keys and values of every layer, ``[1, heads, rows, head_dim]``.
        layout: How they would be stored.
        library: Whose arrays they are.
        squared: The sum of squares of the first array, less the second where there is one.
    """
    found = []
    for layer, rows in enumerate(caches):
        for side, exact in zip(("keys", "values"), rows, strict=True):
            codec, (_, heads, count, head_dim) = library.codec(layout, exact.shape[-1]), exact.shape
            parts = codec.encode(exact)
            values = int(heads * count * head_dim)
            bits = 8.0 * sum(int(part.nbytes) for part in parts) / values
            lost, whole = squared(exact, codec.decode(parts)), squared(exact, None)
            found.append(StoredError(layer, side, values, bits, lost, whole))
    return tuple(found)
