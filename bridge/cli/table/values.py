"""The types of option values, for both programs: a duration, an age, a count."""

from __future__ import annotations

import argparse

from bridge.durations import parse_duration

_DAY_S = 86400.0


def duration(text: str) -> float:
    """Return the seconds of a duration; a bare number is seconds.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _duration(text, 1.0)


def age(text: str) -> float:
    """Return the seconds of an age; a bare number is days.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    return _duration(text, _DAY_S)


def whole_number(text: str) -> int:
    """Return a count.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1_000_000_000:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 0 to 1e9")
    return value


def _duration(text: str, unit_s: float) -> float:
    try:
        return parse_duration(text, unit_s=unit_s)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
