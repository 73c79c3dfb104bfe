"""The state of a recurrent layer in any array library: replaced by every append, put back by replay.

A recurrent layer folds each row into arrays of fixed size, so a rejected row cannot be cut off. Before an append that
may be cropped, the state is kept as it was, with what the recurrence read from each row; a crop into that append runs
the recurrence again over the rows that stay. It is the same arithmetic on the same values in the same order, so the
state is the one that decoding those rows alone would have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.backends.rows import Array
from engine.errors import CacheCropError, UsageError

Arrays = tuple[Array, ...]
CROPPABLE_ROWS = 128
"""Appends of more rows are prompts: they are never cropped into, and what they read is not kept."""


@dataclass(frozen=True, slots=True)
class Append:
    """One append that may be cropped: where it began, the state before, None at position 0, and what was read."""

    begin: int
    before: Arrays | None
    read: Arrays


@dataclass(frozen=True, slots=True)
class HeldState:
    """The state of one layer as it moves from one place to another, and the append that a crop may still go into."""

    state: Arrays
    last: Append | None


class RecurrentState:
    """The state of one layer after ``length`` positions."""

    def __init__(
        self, replay: Callable[[Arrays | None, Arrays, int], Arrays], size: Callable[[Array], int], appends: int | None
    ) -> None:
        """Start empty.

        Args:
            replay: Returns the state behind the first rows of an append: called with the state before, what the
                recurrence read, and how many rows.
            size: Returns the bytes an array really holds.
            appends: How many appends a crop may reach back over, None for all since the last crop.
        """
        self._replay, self._size = replay, size
        self._appends: deque[Append] = deque(maxlen=appends)
        self._length = self._floor = 0
        self.state: Arrays | None = None
        """The arrays, None before the first row."""

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self._length

    def append(self, state: Arrays, read: Arrays, rows: int) -> None:
        """Go on with ``state``, which ``rows`` more rows left; ``read`` is what the recurrence read from them."""
        if rows > CROPPABLE_ROWS:
            self._appends.clear()
        else:
            self._appends.append(Append(self._length, self.state, read))
        self.state = state
        self._length += rows
        self._floor = self._appends[0].begin if self._appends else self._length

    def lend(self, rows: int) -> tuple[int, Arrays]:
        """Return 0, for there is no first row, and the arrays; a state has the same size whatever comes.

        Raises:
            UsageError: If there is no row yet.
        """
        del rows
        return 0, self.held().state

    def take_back(self, arrays: Arrays, rows: int) -> None:
        """Go on with a state that ``rows`` more rows left, and behind it what the recurrence read from them."""
        sides = len(self.state or ())
        self.append(arrays[:sides], arrays[sides:], rows)

    def held(self) -> HeldState:
        """Return the state and the newest append.

        Raises:
            UsageError: If there is no row yet.
        """
        if self.state is None:
            raise UsageError("the state of a sequence without a row was asked for; forward a prompt first")
        return HeldState(self.state, self._appends[-1] if self._appends else None)

    def resume(self, held: HeldState, length: int) -> None:
        """Begin, while empty, with the state of ``length`` positions; a crop may go into its last append."""
        self.state, self._length = held.state, length
        self._appends.extend(() if held.last is None else (held.last,))
        self._floor = length if held.last is None else held.last.begin

    def check_crop(self, length: int) -> None:
        """Check that a crop to ``length`` can be had.

        Raises:
            CacheCropError: If the state of that position is gone, or ``length`` is beyond what was seen.
        """
        if not self._floor <= length <= self._length:
            raise CacheCropError(
                f"crop of a recurrent state to {length} positions; expected {self._floor} <= length <= {self._length}: "
                "earlier states are gone"
            )

    def crop(self, length: int) -> None:
        """Go back to the state of ``length`` positions; earlier ones cannot be had any more.

        Raises:
            CacheCropError: If it is gone, or ``length`` is beyond what was seen.
        """
        self.check_crop(length)
        while self._length > length:
            last = self._appends.pop()
            kept = length - last.begin
            self.state = self._replay(last.before, last.read, kept) if kept > 0 else last.before
            self._length = max(length, last.begin)
        self._appends.clear()
        self._floor = length

    def rewind(self, length: int) -> None:
        """Go back to ``length`` positions for other tokens, which is a crop: there is no way further back.

        Raises:
            CacheCropError: If that state is gone: the sequence has to begin anew.
        """
        self.crop(length)

    def measured_bytes(self) -> int:
        """Return the bytes of the state and of what is kept to crop it."""
        return sum(self._size(array) for array in {id(array): array for array in self._held()}.values())

    def buffers(self) -> list[Array]:
        """Return the arrays of the state, for a library that evaluates them when asked."""
        return list(self.state or ())

    def _held(self) -> list[Array]:
        kept = [array for append in self._appends for array in (*(append.before or ()), *append.read)]
        return [*self.buffers(), *kept]
