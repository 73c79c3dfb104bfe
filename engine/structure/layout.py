"""The text that names which rows of keys and values a target keeps, and in how many bits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from engine.errors import UsageError


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Which rows of keys and values a target keeps, and in how many bits.

    Written as ``native``, ``full``, ``affine8``, ``affine4``, ``affine8/32`` (groups of 32) or ``sink4+window64``.

    Attributes:
        every_row: sliding layers keep every row too, the window enforced by the mask: a labelled study. Otherwise they
            keep their window and one block.
        bits: values are stored as 4- or 8-bit codes, affine per group; None keeps the target's dtype.
        group_size: values that share a scale; None takes the largest divisor of the head's size up to 64.
        sink: full-attention layers keep this many first positions beside ``window``.
        window: full-attention layers attend to the newest this many positions; None to all.
    """

    every_row: bool = False
    bits: int | None = None
    group_size: int | None = None
    sink: int = 0
    window: int | None = None

    NATIVE: ClassVar[CacheLayout]
    FULL: ClassVar[CacheLayout]

    @classmethod
    def parse(cls, text: str) -> CacheLayout:
        """Return the layout that ``text`` names.

        Raises:
            UsageError: If it names none.
        """
        affine, bounded = _AFFINE.fullmatch(text), _BOUNDED.fullmatch(text)
        if text == "native":
            return cls.NATIVE
        if text == "full":
            return cls.FULL
        if affine is not None:
            return cls(bits=int(affine["bits"]), group_size=int(affine["group"]) if affine["group"] else None)
        if bounded is not None:
            return cls(sink=int(bounded["sink"]), window=int(bounded["window"]))
        raise UsageError(
            f"cache layout {text!r}; expected native, full, affine8, affine4, affine8/GROUP, affine4/GROUP or "
            "sinkROWS+windowROWS with a window of at least 1"
        )

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        if self.bits is not None:
            return f"affine{self.bits}" + (f"/{self.group_size}" if self.group_size else "")
        if self.window is not None:
            return f"sink{self.sink}+window{self.window}"
        return "full" if self.every_row else "native"

    @property
    def lossless(self) -> bool:
        """Whether decoding with it is decoding as the model defines it."""
        return self.bits is None and self.window is None

    def group_of(self, head_dim: int) -> int:
        """Return how many values of a head share a scale.

        Raises:
            UsageError: If the asked groups do not divide the head.
        """
        group = self.group_size or max(size for size in range(1, min(head_dim, 64) + 1) if head_dim % size == 0)
        if head_dim % group or (self.bits == 4 and head_dim % 2):
            raise UsageError(
                f"cache layout {self} on heads of {head_dim} values; expected groups that divide them"
                f"{' and an even head for 4 bits' if self.bits == 4 else ''}. Choose another group size."
            )
        return group

    def check(self, windows: Sequence[int | None], head_dims: Sequence[int]) -> None:
        """Check the layout against a target's layers, before anything runs.

        Raises:
            UsageError: If the target cannot have it.
        """
        if self.bits is not None:
            for head_dim in head_dims:
                self.group_of(head_dim)
        if self.window is not None and None not in windows:
            raise UsageError(f"cache layout {self} bounds full-attention layers and the target has none; use native")


CacheLayout.NATIVE = CacheLayout()
CacheLayout.FULL = CacheLayout(every_row=True)
_AFFINE = re.compile(r"affine(?P<bits>[48])(/(?P<group>[1-9][0-9]{0,3}))?")
_BOUNDED = re.compile(r"sink(?P<sink>[0-9]{1,5})\+window(?P<window>[1-9][0-9]{0,6})")
