"""What a study is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Something that is measured case by case.

    Attributes:
        name: also the stem of its report's file.
        about: what it answers, one line.
        cases: returns the names of all cases, in the order they run.
        run: measures one case and returns its rows; an exception leaves the case open.
    """

    name: str
    about: str
    cases: Callable[[], Sequence[str]]
    run: Callable[[str], list[Row]]
