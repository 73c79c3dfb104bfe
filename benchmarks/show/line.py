"""What one promise of an issue is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NOT_MEASURED = "not measured yet"


@dataclass(frozen=True)
class Line:
    """One line of an issue's *Must show*.

    Attributes:
        text: the issue's words.
        command: what an outsider runs to get the figure.
        figure: measures it, or reads it from a committed report where that takes long; None while nobody has.
    """

    text: str
    command: str
    figure: Callable[[], str | None] = lambda: None
