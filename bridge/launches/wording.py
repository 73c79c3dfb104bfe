"""The words that an interval allows, and the sentences around them. One interval decides every word.

Knows no metric; who calls says what was faster.
"""

from __future__ import annotations

import math
from typing import Final

from bridge.launches.attempts import ShownInterval

FASTER: Final = 1.02  # below 2 % nobody would notice
EQUIVALENT: Final = 0.05
NOT_SLOWER: Final = 0.95
NO_DIFFERENCE: Final = "no difference shown"


def effect(bounds: ShownInterval) -> str:
    """Return the strongest word that the interval allows."""
    if bounds.low > FASTER:
        return "faster"
    if bounds.high < 1.0 / FASTER:
        return "slower"
    if bounds.low >= 1.0 - EQUIVALENT and bounds.high <= 1.0 + EQUIVALENT:
        return f"equivalent within {EQUIVALENT * 100:.0f} %"
    if bounds.low >= NOT_SLOWER:
        return f"not slower ({(1.0 - NOT_SLOWER) * 100:.0f} % margin)"
    return NO_DIFFERENCE


def shown(bounds: ShownInterval, launches: int, *, looks: int = 1, sd: float | None = None) -> str:
    """Return the ratio with its interval and what it rests on, for people."""
    said = f"{bounds.value:.2f}x [{bounds.low:.2f}, {bounds.high:.2f}] 95 %, {launches} launches"
    if sd is not None:
        said += f" (sd {sd * 100:.1f} %)"
    return said + (f", best of {looks}" if looks > 1 else "")


def sittings(count: int, load: float | None, *, units: bool = False) -> str:
    """Return the sittings a number is of, and what others used of the machine meanwhile.

    What persists over a whole sitting no rule within it can see, so the number never stands without it.

    Args:
        count: how many.
        load: mean share of the machine that others used in this one; None where nobody saw it.
        units: whether the sittings, not their launches, are what the interval is over.
    """
    said = "one sitting" if count == 1 else f"{count} sittings"
    said += " as units" if units else ""
    used = "an unseen load" if load is None else f"{load * 100:.0f} % of the machine used by others"
    return f"{said}{' at' if count == 1 else ', the last at'} {used}"


def wide(bounds: ShownInterval, most: float) -> str:
    """Return the note on an interval that did not reach the width, empty where it did."""
    return "" if bounds.half_width <= most else f"half-width {bounds.half_width * 100:.1f} %, not {most * 100:.0f} %"


def too_few(launches: int, least: int, needed_s: float | None) -> str:
    """Return why so few launches carry no claim, with the minutes that enough of them need."""
    said = f"{launches} launches, a claim needs {least}"
    if needed_s is None or not math.isfinite(needed_s):
        return said
    return f"{said}: about {max(1, math.ceil(needed_s / 60.0))} minutes on this machine"
