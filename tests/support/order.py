"""Order tests so that the workers of a run end together: each begins with long files, none is left to the end.

`--dist worksteal` gives each worker an equal count of tests as they were ordered, and an idle one takes from the end of
another's. So the files that take long are dealt out by their seconds, the longest first to whoever has least (Graham,
Bounds on Multiprocessing Timing Anomalies, 1969), and short tests fill each worker's part to its count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "data" / "durations.json"
NOTED_LEAST_S = 3.0
"""A file that takes less is not in the table."""


def seconds_by_place(table: Path = TABLE) -> dict[str, float]:
    """Return the seconds that the tests of a file take, or of a folder whose files share what they set up."""
    return dict(json.loads(table.read_bytes()))


def file_of(test: str) -> str:
    """Return the file of a test's id."""
    return test.partition("::")[0]


def dealt(tests: Sequence[str], seconds: Mapping[str, float], workers: int) -> list[int]:
    """Return the places of tests in the order to run them in.

    Args:
        tests: ids, as collected.
        seconds: what the tests below a path take, for the long ones.
        workers: into how many parts of equal count the order will be cut.
    """
    long: dict[str, list[int]] = {}
    short: list[int] = []
    for place, test in enumerate(tests):
        file = file_of(test)
        path = next((path for path in (file, file.rpartition("/")[0]) if path in seconds), None)
        (short if path is None else long.setdefault(path, [])).append(place)
    parts: list[list[int]] = [[] for _ in range(workers)]
    taken = [0.0] * workers
    room = [(len(tests) + part) // workers for part in range(workers)]  # as xdist cuts: the odd ones go to the last
    for path in sorted(long, key=lambda path: -seconds[path]):
        fitting = [part for part in range(workers) if len(parts[part]) + len(long[path]) <= room[part]]
        part = min(fitting or range(workers), key=lambda part: taken[part])
        parts[part] += long[path]
        taken[part] += seconds[path]
    for part in range(workers - 1):
        missing = max(0, room[part] - len(parts[part]))
        parts[part] += short[:missing]
        del short[:missing]
    return [place for places in parts for place in places] + short


class Noting:
    """A plug-in that writes the table of a run: the seconds of each file that takes long, the longest first."""

    def __init__(self, file: Path) -> None:
        self._file, self._taken = file, Counter[str]()
        self._shared = {path for path in seconds_by_place() if not path.endswith(".py")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = file_of(report.nodeid)
        folder = file.rpartition("/")[0]
        self._taken[folder if folder in self._shared else file] += report.duration

    def pytest_sessionfinish(self) -> None:
        long = {path: round(taken, 1) for path, taken in self._taken.most_common() if taken >= NOTED_LEAST_S}
        self._file.write_text(json.dumps(long, indent=1) + "\n", encoding="utf-8")
