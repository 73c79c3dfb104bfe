"""What a check found: one shape for both doctors, the policy check and the check of a set-up, and how people read it.

Knows nothing of what is checked. Only the command line prints.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal

Level = Literal["ok", "warn", "fail"]
LINE_CHARS: Final = 100
_NAME_CHARS: Final = 9
_TEXT_COLUMN: Final = _NAME_CHARS + 7


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what was looked at: a part of the machine, a key of a file.
        level: ``fail`` stands in the way, ``warn`` does not.
        text: what was found, in one line.
        remedy: what to do next; None when there is nothing to do.
    """

    name: str
    level: Level
    text: str
    remedy: str | None = None


def lines(check: Check) -> Iterator[str]:
    """Yield a check as people read it: what was found, then the remedy of what is not ``ok``; lines of LINE_CHARS."""
    first, *rest = wrapped(check.text, _TEXT_COLUMN) or [""]
    yield f"{check.level:<5} {check.name:<{_NAME_CHARS}} {first}"
    if check.remedy is not None and check.level != "ok":
        rest += wrapped(f"next: {check.remedy}", _TEXT_COLUMN)
    yield from (f"{'':<{_TEXT_COLUMN}}{line}" for line in rest)


def grouped(checks: Iterable[Check]) -> Iterator[Check]:
    """Yield checks as they come, a row of like ones (same name, level and remedy) as one that counts them.

    What fails is told each: two mistakes of one file are no repeats.
    """
    for alike, row in groupby(checks, key=lambda check: (check.name, check.level, check.remedy)):
        first, *more = row
        if alike[1] == "fail":
            yield from (first, *more)
            continue
        yield replace(first, text=f"{first.text} (and {len(more)} more like it: --json)") if more else first


def wrapped(text: str, indent_chars: int) -> list[str]:
    """Return a text as lines that fit LINE_CHARS behind an indent; a word, e.g. a path to copy, stays whole."""
    return textwrap.wrap(text, LINE_CHARS - indent_chars, break_long_words=False, break_on_hyphens=False)


def has_failed(checks: Iterable[Check]) -> bool:
    """Return whether one of the checks stands in the way."""
    return any(check.level == "fail" for check in checks)


def checked(name: str, holds: bool, text: str) -> Check:
    """Return the check of something that holds or does not."""
    return Check(name, "ok" if holds else "fail", text)
