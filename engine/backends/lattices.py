"""Lattice codes of rows in any array library: blocks of 4 or 8 values as the nearest point of D4 or E8.

A block is divided by its group's scale and rounded to the nearest point of the lattice (Conway and Sloane, "Fast
quantizing and decoding algorithms for lattice quantizers and codes", IEEE Trans. Inf. Theory 28, 1982). A code is that
point's coordinates modulo ``2 ** bits``: exactly ``bits`` a value. Of all points with one code, the one stored is the
one nearest to 0, in the Voronoi region of the lattice ``2 ** bits`` times as wide ("A fast encoding method for lattice
codes and quantizers", ibid. 29, 1983); the scale keeps every block of a group inside that region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Arithmetic:
    """What lattice codes need of an array library beside the methods that arrays have in common.

    Attributes:
        cast: an array in a dtype.
        single: the dtype of 32-bit floats.
        byte: the dtype of unsigned bytes.
        spacing: the distance from 1 to the next number of a dtype.
        ordered: values in ascending order along the last axis.
        places: 0, 1, … as floats beside an array, so many of them.
        interleaved: two arrays taken in turns along the last axis.
    """

    cast: Callable[[Array, Any], Array]
    single: Any
    byte: Any
    spacing: Callable[[Any], float]
    ordered: Callable[[Array], Array]
    places: Callable[[int, Array], Array]
    interleaved: Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Lattice:
    """D4: whole numbers with an even sum. E8: eight of those, or eight halves of odd numbers with an even sum.

    Attributes:
        block: how many values a point has.
        halves: whether points of halves belong to it.
    """

    block: int
    halves: bool

    def nearest(self, x: Array, places: Array) -> Array:
        """Return the nearest point to each ``[..., block]``; ``places`` are 0, 1, … up to the block."""
        whole = _even(x, places)
        if not self.halves:
            return whole
        halved = _even(x - 0.5, places) + 0.5
        closer = ((x - halved) ** 2).sum(-1) < ((x - whole) ** 2).sum(-1)
        return whole + closer[..., None] * (halved - whole)

    def coordinates(self, points: Array, places: Array) -> Array:
        """Return the whole numbers that name each point of the lattice."""
        first = points[..., :1] * self.halves
        rest = points - first
        return rest - (places == self.block - 1) * rest.sum(-1)[..., None] / 2 + (places == 0) * first * 2

    def points(self, coordinates: Array, places: Array) -> Array:
        """Return the points that whole numbers name."""
        first = coordinates[..., :1] * self.halves
        rest = coordinates - (places == 0) * first
        return rest + (places == self.block - 1) * rest.sum(-1)[..., None] + first / 2

    def reach(self, x: Array, ordered: Callable[[Array], Array]) -> Array:
        """Return how many times wider the Voronoi region of 0 has to be to hold each ``[..., block]`` on its border.

        Its walls belong to the shortest points: two ones, and in E8 eight halves with an even number of minus signs.
        """
        sizes = ordered(abs(x))
        pair = sizes[..., -1] + sizes[..., -2]
        if not self.halves:
            return pair
        half = sizes.sum(-1) / 2 - ((x < 0).sum(-1) % 2) * sizes[..., 0]
        return pair + (half > pair) * (half - pair)


LATTICES = {"d4": Lattice(4, halves=False), "e8": Lattice(8, halves=True)}


class LatticeCodes:
    """Codes of ``bits`` a value with one scale per group of ``group_size`` values of one row.

    A row is coded when it is appended, and never again, as with affine codes.
    """

    def __init__(self, lattice: Lattice, bits: int, group_size: int, arithmetic: Arithmetic) -> None:
        self.lattice, self.bits, self.group_size = lattice, bits, group_size
        self._arithmetic = arithmetic
        self._dtype = arithmetic.single

    def encode(self, rows: Array) -> tuple[Array, ...]:
        """Return codes (bytes, two in one at 4 bits) and scales."""
        use, levels = self._arithmetic, 1 << self.bits
        self._dtype = rows.dtype
        blocks = self._blocks(use.cast(rows, use.single))
        places = use.places(self.lattice.block, blocks)
        widest = use.ordered(self.lattice.reach(blocks, use.ordered))[..., -1]
        # Rounding moves a point by one region of the lattice itself at most, and the scale is read back rounded.
        scale = use.cast(widest / (levels - 1) * (1 + 2 * use.spacing(rows.dtype)), rows.dtype)
        scale = use.cast(scale + (scale == 0), rows.dtype)
        points = self.lattice.nearest(blocks / use.cast(scale, use.single)[..., None, None], places)
        codes = use.cast((self.lattice.coordinates(points, places) % levels).reshape(rows.shape), use.byte)
        if self.bits == 4:
            codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
        return codes, scale

    def decode(self, parts: tuple[Array, ...]) -> Array:
        """Return the points that codes stand for times their scales."""
        codes, scale = parts
        use, levels = self._arithmetic, 1 << self.bits
        if self.bits == 4:
            codes = use.interleaved(codes & 15, codes >> 4)
        blocks = self._blocks(use.cast(codes, use.single))
        places = use.places(self.lattice.block, blocks)
        points = self.lattice.points(blocks, places)
        points = points - levels * self.lattice.nearest(points / levels, places)
        rows = points * use.cast(scale, use.single)[..., None, None]
        return use.cast(rows.reshape(codes.shape), self._dtype)

    def _blocks(self, rows: Array) -> Array:
        """Return rows ``[..., head_dim]`` as ``[..., groups, blocks of a group, block]``."""
        groups = rows.shape[-1] // self.group_size
        return rows.reshape(*rows.shape[:-1], groups, self.group_size // self.lattice.block, self.lattice.block)


def _even(x: Array, places: Array) -> Array:
    """Return the nearest whole numbers with an even sum: where it is odd, the least sure of them goes the other way."""
    near = x.round()
    off = x - near
    worst = abs(off).argmax(-1)[..., None] == places
    return near + (near.sum(-1)[..., None] % 2) * worst * ((off >= 0) * 2 - 1)
