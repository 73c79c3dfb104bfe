"""Which tests `make test` leaves to `make ci`: those marked `ci`, and all cases of a slower test but one.

Below `tests/integration` and `tests/conformance` a test with several cases asks the same of several backends, stores or
executors. `make test` tries one case of each such test, drawn by the test's name: it is the same one in every run, and
another one for the next test, so that together they meet every backend.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

DRAWN = ("tests/integration/", "tests/conformance/")
"""Folders in which `make test` tries one case of a test."""


def left_to_ci(tests: Sequence[str]) -> list[int]:
    """Return the places of the cases that `make test` does not draw.

    Args:
        tests: ids as collected, `FILE::TEST[CASE]`.
    """
    cases: dict[str, list[int]] = {}
    for place, test in enumerate(tests):
        if test.startswith(DRAWN) and "[" in test:
            cases.setdefault(test.partition("[")[0], []).append(place)
    left: list[int] = []
    for name, places in cases.items():
        drawn = places[zlib.crc32(name.encode()) % len(places)]
        left += [place for place in places if place != drawn]
    return sorted(left)
