"""Time several ways of doing a thing in turn, so that drift hits them alike.

Knows nothing about what is timed.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of every repeat of one way, in the order they were run."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median repeat."""
        return statistics.median(self.seconds)

    @property
    def p90_s(self) -> float:
        """The 90th percentile, by rank."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(0.9 * len(self.seconds)))]


def interleave(
    ways: Mapping[str, Callable[[], object]], repeats: int, *, warmups: int = 1, seed: int = 0
) -> dict[str, Timing]:
    """Run every way `repeats` times, each turn in a new random order, after `warmups` untimed turns."""
    order = random.Random(seed)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(warmups + repeats):
        names = list(ways)
        order.shuffle(names)
        for name in names:
            start = time.perf_counter()
            ways[name]()
            elapsed = time.perf_counter() - start
            if turn >= warmups:
                taken[name].append(elapsed)
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def ratio(timings: Mapping[str, Timing], of: str, to: str) -> float:
    """Return the ratio of two medians of the same interleaved run."""
    return timings[of].median_s / timings[to].median_s
