"""Run tests in this process and print, as the last line, what each file of them took: a JSON object.

    python -m benchmarks.studies.file_seconds tests/unit/steps -m "not slow"

The object says of each file how many of its tests passed, how many were skipped and the processor seconds of its
tests: of this process and of what they started and waited for. What an orphan spends that somebody else reaps is
not in it. Exits as pytest does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence

import pytest


def spent_s() -> float:
    """Return the processor seconds of this process and of its children that ended, since it began."""
    return sum(os.times()[:4])


class FileSeconds:
    """A plugin that books each test, its fixtures included, on its file.

    Attributes:
        files: by file, relative to the root: `tests`, `skipped`, `processor s`.
    """

    def __init__(self) -> None:
        """Begin with no files."""
        self.files: dict[str, dict[str, float]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Book what one test takes; a module's fixtures are its first and last test's."""
        file = self.files.setdefault(_file(item.nodeid), {"tests": 0, "skipped": 0, "processor s": 0.0})
        before_s = spent_s()
        try:
            return (yield)
        finally:
            file["processor s"] += spent_s() - before_s

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what a test came to."""
        if report.skipped:
            self.files[_file(report.nodeid)]["skipped"] += 1
        elif report.when == "call" and report.passed:
            self.files[_file(report.nodeid)]["tests"] += 1


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def main(words: Sequence[str]) -> int:
    """Run pytest with these words in this process; return its exit code."""
    plugin = FileSeconds()
    code = pytest.main([*words], plugins=[plugin])
    files = {name: one | {"processor s": round(one["processor s"], 2)} for name, one in plugin.files.items()}
    print(json.dumps(files))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
