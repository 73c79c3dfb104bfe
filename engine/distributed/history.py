"""What a remote drafter's client keeps of a sequence: tokens, and the rows that a server may have to be shown again.

Rows before the newest ``context_tokens`` positions are never sent: a context shows no more. Rows are packed in the
caller's thread, because array libraries bind arrays to the thread that made them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import CacheCropError, ObservationError
from engine.types import Features

MOST_SEGMENT_TOKENS = 1 << 14
"""Tokens that are sent as committed together where all of them are kept."""
UNPACKED_ROWS = 256
"""Rows that may wait as arrays while nothing is asked: packing waits for the forward that is under way."""
Pack = Callable[[list[Features]], bytes]


@dataclass(slots=True)
class Observed:
    """Tokens that were committed together, and their rows: features until they are packed, then bytes."""

    start: int
    tokens: tuple[int, ...]
    features: Features
    data: bytes | None

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.start + len(self.tokens)


class ObservedRows:
    """The committed positions of one sequence; ``pack`` makes bytes of arrays of rows, None where none are read."""

    def __init__(self, context_tokens: int | None, pack: Pack | None) -> None:
        self.length = 0
        self._context_tokens = context_tokens
        self._pack = pack
        self._kept: deque[Observed] = deque()
        self._unpacked_rows = 0

    def add(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Take committed tokens with their rows.

        Raises:
            ObservationError: If they do not follow those so far.
        """
        ObservationError.check(start, self.length)
        # Rows that another drafter of the sequence reads: arrays that nobody packs would stay as long as the tokens.
        features = None if self._pack is None else features
        most = self._context_tokens
        if most is None and len(tokens) > MOST_SEGMENT_TOKENS:
            self.add(start, tokens[:MOST_SEGMENT_TOKENS], features)
            self.add(start + MOST_SEGMENT_TOKENS, tokens[MOST_SEGMENT_TOKENS:], features)
            return
        self.length += len(tokens)
        if most is not None and len(tokens) > most:
            start, tokens, features = self.length - most, tokens[-most:], None if features is None else features[-most:]
        data = None if self._pack is not None else b""
        self._kept.append(Observed(start, tokens, features, data))
        while most is not None and len(self._kept) > 1 and self._kept[1].start <= self.length - most:
            self._kept.popleft()
        self._unpacked_rows += len(tokens)
        if self._unpacked_rows >= UNPACKED_ROWS:
            self.pack()

    def pack(self) -> None:
        """Make bytes of all rows that are still arrays, in one go: each array read by itself would be waited for."""
        self._unpacked_rows = 0
        arrays = [observed for observed in self._kept if observed.data is None]
        if not arrays or self._pack is None:
            return
        data = self._pack([observed.features for observed in arrays])
        row_bytes, begin = len(data) // sum(len(observed.tokens) for observed in arrays), 0
        for observed in arrays:
            end = begin + row_bytes * len(observed.tokens)
            observed.data, observed.features, begin = data[begin:end], None, end

    def since(self, position: int, until: int) -> list[Observed]:
        """Return what was committed from ``position`` on, or as far back as is kept, and before ``until``."""
        return [observed for observed in self._kept if observed.end > position and observed.start < until]

    def reaches(self, position: int) -> bool:
        """Say whether everything from ``position`` on is kept, cut there."""
        return position == self.length or any(observed.start == position for observed in self._kept)

    def rewind(self, length: int) -> int:
        """Forget positions from ``length`` on; return how many are left.

        Raises:
            CacheCropError: If rows that a context would show then are gone.
        """
        length = min(length, self.length)
        needed = 0 if self._context_tokens is None else max(0, length - self._context_tokens)
        if length and self._kept and self._kept[0].start > needed:
            raise CacheCropError(f"back to {length} positions; the rows before {self._kept[0].start} are gone")
        self.pack()
        while self._kept and self._kept[-1].start >= length:
            self._kept.pop()
        if self._kept and self._kept[-1].end > length:
            last = self._kept.pop()
            count, data = length - last.start, last.data or b""
            size = len(data) // len(last.tokens)
            self._kept.append(Observed(last.start, last.tokens[:count], None, data[: count * size]))
        self.length = length
        return length

    def measured_bytes(self) -> int:
        """Return the bytes of rows kept here, once all of them are packed: as many whenever the last ask was."""
        self.pack()
        return sum(len(observed.data or b"") for observed in self._kept)
