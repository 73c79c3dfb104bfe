"""What the next rows of a cache may attend to: the cache states it in positions, a backend makes a mask of it."""

from __future__ import annotations

from dataclasses import dataclass

Run = tuple[int, int]
"""Positions from the first up to the second, which is not among them."""


@dataclass(frozen=True, slots=True)
class Visibility:
    """The positions that an append returns, and which of them each of its new rows sees.

    A new row sees no position behind its own. With a ``window`` it sees the newest so many up to its own, and those
    below ``sink``: a rule of positions alone, so a row in a block sees what it would have seen by itself.

    Attributes:
        runs: positions of the rows that the append returns, oldest first; the last run ends with the new rows.
        rows: how many rows are new.
        window: newest positions that a row sees, None for all of them.
        sink: first positions that a row sees whatever the window.
        again: which of the runs are rows made again: a query sees those of them that its window no longer reaches, and
            no row of another run at such a position; None for no run.
        alone: query heads, and how many share a key head, where an append returns one row for each query and head,
            which that query sees alone.
    """

    runs: tuple[Run, ...]
    rows: int
    window: int | None = None
    sink: int = 0
    again: Run | None = None
    alone: tuple[int, int] | None = None

    @property
    def start(self) -> int:
        """The position of the first new row."""
        return self.runs[-1][1] - self.rows

    @property
    def causal(self) -> bool:
        """Whether every new row sees all that is returned up to its own position."""
        first, end = self.runs[-1]
        return self.window is None or end - max(first, self.sink) <= self.window
