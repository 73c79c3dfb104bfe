"""The text that names which rows of keys and values a target keeps, and in how many bits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from engine.errors import UsageError

_CODED = re.compile(r"(affine|(?P<lattice>d4|e8)x)(?P<bits>[48])(/(?P<group>[1-9][0-9]{0,3}))?")
_BLOCKS = {None: 1, "d4": 4, "e8": 8}
_BOUNDED = re.compile(
    r"sink(?P<sink>[0-9]{1,5})\+window(?P<window>[1-9][0-9]{0,6})(?P<exact>(\+exact[0-9]{1,3})*)"
    r"(\+pages(?P<page_rows>[1-9][0-9]{0,3})x(?P<page_count>[1-9][0-9]{0,4})(/(?P<policy>[a-z]{1,9}))?"
    r"(?P<paged>(\+layer[0-9]{1,3})*))?"
    r"(?P<stream>\+stream)?(?P<host>\+host)?"
    r"(?P<restored>\+ftheta(?=[1-9@])(?P<rank>[1-9][0-9]{0,4})?(?P<remote>@remote(/(?P<sent>bfloat16))?)?)?"
)
POLICIES = ("codes", "recent")
"""What may choose the pages that a block sees; the first does unless another is named."""
EXACT = "exact"
"""What stands for the dtype that a target's rows have."""
LONGEST_BLOCK = 17
"""Rows that a pool holds at least: the longest draft that is asked for, and the bonus."""


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Which rows of keys and values a target keeps, and in how many bits.

    Written as ``native``, ``full``, ``affine8``, ``affine4``, ``affine8/32`` (groups of 32), ``d4x4`` or ``e8x4``
    (points of a lattice, 4 bits a value), or ``sink4+window64``.
    Behind a window may follow, in this order, ``+exact5`` for each layer that keeps every row, ``+pages16x10`` (10
    pages of 16 evicted rows) or ``+pages16x10/recent``, ``+layer5`` for each layer that alone has them, ``+stream``,
    ``+host`` and ``+ftheta64``, which ``@remote`` or ``@remote/bfloat16`` has made on the drafter's host; the rank may
    be left out there.

    Attributes:
        every_row: sliding layers keep every row too, the window enforced by the mask: a labelled study. Otherwise they
            keep their window and one block.
        bits: values are stored in codes of 4 or 8 bits; None keeps the target's dtype.
        lattice: blocks of values are points of ``d4`` or ``e8``; None for codes of single values, affine per group.
        group_size: values that share a scale; None takes the largest divisor of the head's size up to 64, in whole
            blocks of the lattice.
        sink: full-attention layers keep this many first positions beside ``window``.
        window: full-attention layers attend to the newest this many positions; None to all.
        exact: full-attention layers that are not bounded, ascending.
        pages: rows of a page and how many pages of evicted rows each bounded layer holds; None for no pages.
        paged: the layers that have pages where not every bounded one has, ascending; the others keep what their window
            does.
        policy: what chooses those pages: one of ``POLICIES``, or ``attention``, which only a stream can measure.
        stream: evicted rows are read page by page for each block.
        host: evicted rows lie in the memory of the host instead of a file.
        rank: evicted rows are made again from so many values a side, with pages those that are read; 0 for as many as
            the drafter's host has, None for rows that are kept or gone.
        remote: the dtype in which the drafter's host sends such rows, ``exact`` for the target's own; None where they
            are made here.
    """

    every_row: bool = False
    bits: int | None = None
    lattice: str | None = None
    group_size: int | None = None
    sink: int = 0
    window: int | None = None
    exact: tuple[int, ...] = ()
    pages: tuple[int, int] | None = None
    paged: tuple[int, ...] = ()
    policy: str = ""
    stream: bool = False
    host: bool = False
    rank: int | None = None
    remote: str | None = None

    NATIVE: ClassVar[CacheLayout]
    FULL: ClassVar[CacheLayout]

    @classmethod
    def parse(cls, text: str) -> CacheLayout:
        """Return the layout that ``text`` names.

        Raises:
            UsageError: If it names none.
        """
        coded, bounded = _CODED.fullmatch(text), _BOUNDED.fullmatch(text)
        if text == "native":
            return cls.NATIVE
        if text == "full":
            return cls.FULL
        if coded is not None:
            group = int(coded["group"]) if coded["group"] else None
            return cls(bits=int(coded["bits"]), lattice=coded["lattice"], group_size=group)
        if bounded is not None:
            layout = cls._bounded(bounded)
            layout._check_pages()
            if str(layout) == text:
                return layout
            raise UsageError(f"cache layout {text!r}; expected it as {str(layout)!r}: each part once, numbers in order")
        raise UsageError(
            f"cache layout {text!r}; expected native, full, affine8, affine4, d4x8, d4x4, e8x8 or e8x4, one of those "
            "with /GROUP behind it, or sinkROWS+windowROWS with a window of at least 1, and behind that +exactLAYER "
            "for each layer, +pagesROWSxPAGES or +pagesROWSxPAGES/POLICY, +layerLAYER for each that alone has pages, "
            "+stream, +host and +fthetaRANK, or +ftheta@remote for rows that the drafter's host makes"
        )

    @classmethod
    def _bounded(cls, parts: re.Match[str]) -> CacheLayout:
        exact = sorted({int(layer) for layer in parts["exact"].split("+exact")[1:]})
        paged = sorted({int(layer) for layer in (parts["paged"] or "").split("+layer")[1:]})
        return cls(
            sink=int(parts["sink"]),
            window=int(parts["window"]),
            exact=tuple(exact),
            pages=(int(parts["page_rows"]), int(parts["page_count"])) if parts["page_rows"] else None,
            paged=tuple(paged),
            policy=parts["policy"] or _usual_policy(parts["page_rows"] is not None, parts["stream"] is not None),
            stream=parts["stream"] is not None,
            host=parts["host"] is not None,
            rank=int(parts["rank"] or 0) if parts["restored"] else None,
            remote=(parts["sent"] or EXACT) if parts["remote"] else None,
        )

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        if self.bits is not None:
            name = "affine" if self.lattice is None else f"{self.lattice}x"
            return f"{name}{self.bits}" + (f"/{self.group_size}" if self.group_size else "")
        if self.window is None:
            return "full" if self.every_row else "native"
        parts = [f"sink{self.sink}+window{self.window}", *(f"exact{layer}" for layer in self.exact)]
        if self.pages is not None:
            named = "" if self.policy == _usual_policy(True, self.stream) else f"/{self.policy}"
            parts.append(f"pages{self.pages[0]}x{self.pages[1]}{named}")
            parts += [f"layer{layer}" for layer in self.paged]
        parts += ["stream"] if self.stream else []
        parts += ["host"] if self.host else []
        return "+".join(parts + ([] if self.rank is None else [self._restored()]))

    def _restored(self) -> str:
        sent = "" if self.remote in (None, EXACT) else f"/{self.remote}"
        return f"ftheta{self.rank or ''}" + ("" if self.remote is None else f"@remote{sent}")

    @property
    def lossless(self) -> bool:
        """Whether decoding with it is decoding as the model defines it."""
        return self.bits is None and (self.window is None or (self.stream and self.rank is None))

    @property
    def evicts(self) -> bool:
        """Whether rows that leave the window are kept to be read again."""
        return self.stream or self.pages is not None

    def of(self, layer: int) -> CacheLayout:
        """Return the layout of one layer: an exact one keeps every row that the model attends to."""
        if layer in self.exact:
            return CacheLayout.NATIVE
        if self.paged and layer not in self.paged:
            return CacheLayout(sink=self.sink, window=self.window)
        return self

    def group_of(self, head_dim: int) -> int:
        """Return how many values of a head share a scale.

        Raises:
            UsageError: If the asked groups do not divide the head.
        """
        block = _BLOCKS[self.lattice]
        fitting = [size for size in range(block, min(head_dim, 64) + 1, block) if head_dim % size == 0]
        group = self.group_size or max(fitting, default=0)
        if not group or head_dim % group or group % block or (self.bits == 4 and head_dim % 2):
            condition = " and an even head for 4 bits" if self.bits == 4 else ""
            condition = f" and are whole blocks of {block}" if self.lattice else condition
            raise UsageError(
                f"cache layout {self} on heads of {head_dim} values; expected groups that divide them{condition}. "
                "Choose another group size, or affine codes."
            )
        return group

    def check(
        self,
        windows: Sequence[int | None],
        head_dims: Sequence[int],
        layers: Sequence[int],
        positions: int | None = None,
    ) -> None:
        """Check the layout against a target's layers, before anything runs.

        Args:
            windows: The window of every layer that keeps rows, None on full-attention layers.
            head_dims: The size of a head in each of them.
            layers: Which layers of the target they are.
            positions: The positions that the target holds, None where nobody knows.

        Raises:
            UsageError: If the target cannot have it.
        """
        if self.bits is not None:
            for head_dim in head_dims:
                self.group_of(head_dim)
        if self.window is not None:
            self._check_bounded([layer for layer, window in zip(layers, windows, strict=True) if window is None])
            self._check_left_out(positions)
        if self.pages is not None:
            self._check_index([size for size, window in zip(head_dims, windows, strict=True) if window is None])

    @property
    def block_rows(self) -> int | None:
        """How many rows a block may have at most, None for any number."""
        if self.pages is not None:
            return self.pages[0] * self.pages[1]
        return self.window if self.rank is not None and not self.evicts else None

    def check_block(self, rows: int) -> None:
        """Check that the pages of a pool may serve a block, or that its rows are exact where others are made again.

        Raises:
            UsageError: If the block has more rows.
        """
        most = self.block_rows
        if most is None or rows <= most:
            return
        if self.pages is None:
            raise UsageError(
                f"a block of {rows} rows with cache layout {self}: rows behind its window of {self.window} are made "
                "again, and a block has to be within it. Widen the window, or draft less (--depth)"
            )
        raise UsageError(
            f"a block of {rows} rows with cache layout {self}, whose pool holds {most}; expected at least a row for "
            "each row of a block. Draft fewer tokens or take more pages"
        )

    def check_alone(self) -> None:
        """Check that a process that reaches no other can compute it again, as it does every report.

        Raises:
            UsageError: If rows are made elsewhere.
        """
        if self.remote is not None:
            raise UsageError(
                f"cache layout {self}: what makes a report again reaches no other process; `kakeya-engine distributed "
                "restore` compares rows made elsewhere with rows made here"
            )

    def _check_pages(self) -> None:
        """Check that what is said of pages goes together."""
        if self.host and not self.evicts:
            raise UsageError(
                f"cache layout {self}: +host says where evicted rows lie; expected +pages or +stream before"
            )
        if self.host and self.rank is not None:
            raise UsageError(
                f"cache layout {self}: +host says where evicted rows lie, and with +{self._restored()} they are made "
                "again and lie nowhere; expected one of the two"
            )
        if self.pages is None:
            return
        if self.paged and (self.stream or self.rank is not None):
            raise UsageError(
                f"cache layout {self}: +layer{self.paged[0]} says which layers alone have pages, and with +stream or "
                "+ftheta the others read what they evicted too; expected one of the two"
            )
        policies = ("attention",) if self.stream else POLICIES
        if self.policy not in policies:
            why = "a stream" if self.stream else "pages that are not all read"
            raise UsageError(f"cache layout {self}: pages by {self.policy!r}; expected of {why} {', '.join(policies)}")
        rows, count = self.pages
        if rows * count < LONGEST_BLOCK:
            raise UsageError(
                f"cache layout {self}: a pool of {rows * count} rows is smaller than a block, which may have "
                f"{LONGEST_BLOCK}; expected more pages, or more rows in each"
            )

    @property
    def kept_rows(self) -> int | None:
        """How many rows a bounded layer keeps in memory, None where none is bounded."""
        rows, count = self.pages or (0, 0)
        return None if self.window is None else self.sink + self.window + rows * count

    def _check_left_out(self, positions: int | None) -> None:
        """Check that rows can leave: buffers of more rows than positions would be larger than the native cache."""
        rows = self.kept_rows
        if positions is not None and rows is not None and rows >= positions:
            raise UsageError(
                f"cache layout {self} keeps {rows} rows and the target holds {positions} positions, so nothing would "
                f"ever be left out{' where it has pages' if self.paged else ''}; expected "
                f"{'fewer pages' if self.pages else 'a smaller window'}, or "
                f"{'+exact for these layers' if self.paged else 'native'}"
            )

    def _check_index(self, head_dims: Sequence[int]) -> None:
        """Check that what pages are chosen by can be made of heads of these sizes."""
        odd = [size for size in head_dims if size % 4]
        if self.policy == "codes" and odd:
            raise UsageError(f"cache layout {self} on heads of {odd[0]} values; expected a multiple of 4")

    def _check_bounded(self, full: list[int]) -> None:
        """Check that there are layers to bound among ``full``, and that every part can be decoded."""
        if not full:
            raise UsageError(f"cache layout {self} bounds full-attention layers and the target has none; use native")
        unknown = [layer for layer in (*self.exact, *self.paged) if layer not in full]
        if unknown:
            raise UsageError(f"cache layout {self}: layer {unknown[0]} is none of the full-attention layers {full}")
        both = [layer for layer in self.paged if layer in self.exact]
        if both:
            raise UsageError(
                f"cache layout {self}: layer {both[0]} keeps every row and has pages; expected one of the two"
            )
        if self.paged and len(self.exact) + len(self.paged) == len(full):
            raise UsageError(
                f"cache layout {self} names every bounded layer of {full} with +layer; leave these parts out"
            )
        if list(self.exact) == full:
            raise UsageError(f"cache layout {self} leaves no full-attention layer of {full} to bound; use native")


def _usual_policy(pages: bool, stream: bool) -> str:
    """Return what chooses pages where no policy is named."""
    return ("attention" if stream else POLICIES[0]) if pages else ""


CacheLayout.NATIVE = CacheLayout()
CacheLayout.FULL = CacheLayout(every_row=True)
