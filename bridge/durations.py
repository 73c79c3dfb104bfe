"""Durations as people write and read them: ``45s``, ``1h30m``, ``2d``. The same for every option and every output."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_WRITTEN: Final = re.compile(
    r"(?:(?P<d>\d{1,6})d)?(?:(?P<h>\d{1,6})h)?(?:(?P<m>\d{1,7})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,3})?)s)?", re.ASCII
)
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
MOST_S: Final = 1e9


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units, the second left out where it is nothing: ``1h30m``, ``4m``."""
    whole = max(0, round(seconds))
    if whole == 0:
        return f"{max(0.0, seconds):.1f}s"
    for place, (unit, size) in enumerate(_UNITS):
        if whole >= size:
            count, left = divmod(whole, size)
            below = _UNITS[place + 1 : place + 2]
            rest = "".join(f"{left // small}{name}" for name, small in below if left // small)
            return f"{count}{unit}{rest}"
    return "0s"


def measured_text(seconds: float) -> str:
    """Return a measured duration: in tenths of a second below ten, in its two largest units above."""
    return f"{max(0.0, seconds):.1f}s" if seconds < 9.95 else duration_text(seconds)


def age_text(seconds: float) -> str:
    """Return an age in one unit, at least two of it: ``90s``, ``5m``, ``47h``, ``3d``."""
    for unit, size in _UNITS[:-1]:
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def parse_duration(text: str, *, unit_s: float = 1.0) -> float:
    """Return the seconds of a duration.

    Args:
        text: such as ``90``, ``90s``, ``1h30m`` or ``2d``.
        unit_s: what a bare number counts, in seconds.

    Raises:
        ValueError: it is none, or longer than 1e9 s; the message names both forms.
    """
    if _NUMBER.fullmatch(text):
        seconds = float(text) * unit_s
    elif text and (match := _WRITTEN.fullmatch(text)) is not None:
        seconds = sum(float(match[name] or 0) * size for name, size in _UNITS)
    else:
        seconds = -1.0
    if not 0 <= seconds <= MOST_S:
        raise ValueError(f"got {text[:40]!r}, expected a duration such as 45s, 1h30m or 2d")
    return seconds
