"""Draw claims with their intervals in characters: a fenced block looks the same wherever markdown is shown.

GitHub draws no intervals in its diagrams, takes SVG out of markdown, and shows no image of a file that is not public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from bridge.launches import figures

if TYPE_CHECKING:
    from bridge.records.verdict import ClaimResult

_COLUMNS: Final = 41  # of the axis; a line is narrow enough for a telephone
_NAME_CHARS: Final = 18
_RATIOS: Final = frozenset({"x", "ratio"})


def plot_lines(claims: Iterable[ClaimResult]) -> Iterator[str]:
    """Yield an axis for each unit, and a line for each claim that has an interval of finite numbers."""
    groups: dict[str, list[tuple[str, float, float, float]]] = {}
    for claim in claims:
        numbers = (claim.value, *(claim.interval or ()))
        if len(numbers) == 3 and all(number is not None and math.isfinite(number) for number in numbers):
            value, low, high = (float(number) for number in numbers if number is not None)
            groups.setdefault(claim.unit, []).append((claim.id, value, low, high))
    for unit, rows in groups.items():
        yield from _group(unit, rows)


def _group(unit: str, rows: Sequence[tuple[str, float, float, float]]) -> Iterator[str]:
    marks = [number for _, *numbers in rows for number in numbers] + ([1.0] if unit in _RATIOS else [])
    least, most = min(marks), max(marks)

    def place(number: float) -> int:
        return round((number - least) / (most - least) * (_COLUMNS - 1)) if most > least else _COLUMNS // 2

    ends = _end(least).ljust(_COLUMNS // 2) + _end(most).rjust(_COLUMNS - _COLUMNS // 2)
    yield f"{_plain(unit):<{_NAME_CHARS}} {ends}"
    for name, value, low, high in rows:
        axis = [" "] * _COLUMNS
        first, last = place(low), place(high)
        axis[first : last + 1] = "-" * (last + 1 - first)
        if unit in _RATIOS:
            axis[place(1.0)] = ":"
        axis[first], axis[last], axis[place(value)] = "[", "]", "o"
        yield f"{_plain(name):<{_NAME_CHARS}} {''.join(axis)}  {_number(value, (low, high))}"


def _number(value: float, interval: tuple[float, float] | None = None) -> str:
    """Return a number with as many digits as its interval says something of, without the interval."""
    number = figures.shown(value, figures.UNITLESS, interval)
    return f"{number.value}{number.unit}"


def _end(value: float) -> str:
    """Return an end of an axis, without the zeros that say nothing of it."""
    number = figures.shown(value, figures.UNITLESS)
    return f"{number.value.rstrip('0').rstrip('.') if '.' in number.value else number.value}{number.unit}"


def _plain(text: str) -> str:
    """Return a name without what could end the block."""
    return "".join(char if char.isprintable() and char != "`" else "?" for char in text)[:_NAME_CHARS]
