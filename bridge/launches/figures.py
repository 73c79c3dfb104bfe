"""Numbers for people: as many digits as the interval says something of, thousands grouped, millions scaled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

UNITLESS: Final = "1"
_DIGITS: Final = 4
_DIGITS_MOST: Final = 15
_PREFIXES: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
_PLAIN_LEAST: Final = 1e-4
_NOISE: Final = 1e-9
"""By this share of a number floating point alone makes bounds differ."""
_ROUNDED: Final = 1e-6
"""By this share of its last digit a bound may be rounded towards the other: floating point alone moves it so far."""


@dataclass(frozen=True)
class Shown:
    """A number, its bounds and its unit as they are printed; no unit where it has none.

    Attributes:
        value: the number.
        interval: both bounds in brackets, empty without them.
        unit: with a space before it, scaled like the number.
    """

    value: str
    interval: str
    unit: str

    def __str__(self) -> str:
        return f"{self.value}{self.unit}{self.interval}"


def shown(
    value: float, unit: str, interval: tuple[float, float] | None = None, *, sign: bool = False, digits: int = _DIGITS
) -> Shown:
    """Return a number as it is printed.

    An exact count, a whole number without spread, is printed whole. Otherwise the interval's half-width fixes the
    digits, two of its own, and bounds are rounded outwards; without an interval there are `digits`.

    Args:
        value: the number.
        unit: of it, `UNITLESS` for none.
        interval: its lower and upper bound.
        sign: whether a plus is printed, too.
        digits: how many significant ones a number without an interval has.
    """
    half = 0.0 if interval is None else (interval[1] - interval[0]) / 2.0
    exact = half == 0.0 and float(value).is_integer() and abs(value) < 1e15
    scale, prefix = (1.0, "") if exact else _scale(value)
    decimals = 0 if exact else _decimals(value / scale, half / scale, digits)
    bounds = () if interval is None else outward(interval[0] / scale, interval[1] / scale, decimals)
    text = [_text(number, decimals, sign=sign) for number in (value / scale, *bounds)]
    return Shown(text[0], f" [{text[1]}, {text[2]}]" if interval is not None else "", _unit(unit, prefix))


def outward(low: float, high: float, decimals: int) -> tuple[float, float]:
    """Return bounds with so many digits after the point, neither of them rounded towards the other."""
    unit = float(f"1e{-decimals}")
    least, most = round(low, decimals), round(high, decimals)
    if least - low > _ROUNDED * unit:
        least = round(least - unit, decimals)
    if high - most > _ROUNDED * unit:
        most = round(most + unit, decimals)
    return least, most


def proportion(value: float, interval: tuple[float, float]) -> str:
    """Return a share with its bounds, three digits after the point."""
    low, high = outward(*interval, 3)
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def digits_of(detail: object) -> int:
    """Return how many significant digits a number without an interval is printed with, by the detail of its claim."""
    digits = detail.get("digits") if isinstance(detail, Mapping) else None
    return digits if isinstance(digits, int) and 1 <= digits <= _DIGITS_MOST else _DIGITS


def _scale(value: float) -> tuple[float, str]:
    return next(((scale, prefix) for scale, prefix in _PREFIXES if abs(value) >= scale), (1.0, ""))


def _decimals(value: float, half: float, digits: int) -> int:
    """Return how many digits are printed after the point; a negative count is of digits before it."""
    if half > _NOISE * abs(value) and math.isfinite(half):
        return 1 - math.floor(math.log10(half))
    return digits - 1 - math.floor(math.log10(abs(value))) if value else 0


def _text(number: float, decimals: int, *, sign: bool) -> str:
    plus = "+" if sign else ""
    if number and (abs(number) < _PLAIN_LEAST or abs(number) >= 1e21):
        digits = max(0, decimals + math.floor(math.log10(abs(number))))
        return f"{number:{plus}.{min(digits, 16)}e}"
    return f"{round(number, decimals):{plus},.{min(max(0, decimals), 16)}f}"


def _unit(unit: str, prefix: str) -> str:
    if unit == UNITLESS:
        return f" {prefix}" if prefix else ""
    if not prefix:
        return f" {unit}"
    return f" {prefix}B" if unit in {"bytes", "B"} else f" {prefix} {unit}"
