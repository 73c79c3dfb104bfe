"""What a study is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Entry = dict[str, Any]
"""A line of a report: `case`, its `rows`, and what they were measured on."""


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """Return the rows of all entries of a report."""
    return [row for entry in entries for row in entry["rows"]]


@dataclass(frozen=True)
class Study:
    """Something that is measured case by case.

    Attributes:
        name: also the stem of its report's file.
        about: what it answers, one line.
        cases: returns the names of all cases, in the order they run.
        run: measures one case and returns its rows; an exception leaves the case open.
        duration: how long all cases took when they were measured last, on two cores.
        summary: says in lines what the entries of a report come to, None where rows speak for themselves.
    """

    name: str
    about: str
    cases: Callable[[], Sequence[str]]
    run: Callable[[str], list[Row]]
    duration: str
    summary: Callable[[Sequence[Entry]], list[str]] | None = None

    def lines(self, entries: Sequence[Entry]) -> list[str]:
        """Return what a report comes to, nothing before its first case."""
        return [] if self.summary is None or not entries else self.summary(entries)
