"""The tests that are marked slow, a file a case."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "slow", "-p", "no:cacheprovider")
NO_TESTS = 5


def files(folder: str = "tests") -> Sequence[str]:
    """Return the files that hold slow tests."""
    listed = subprocess.run([*PYTEST, "--collect-only", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode not in {0, NO_TESTS}:
        raise RuntimeError(f"the tests cannot be listed: {listed.stdout[-2000:]}{listed.stderr[-2000:]}")
    return sorted({line.split("::")[0] for line in listed.stdout.splitlines() if "::" in line})


def run(file: str) -> list[Row]:
    """Run the slow tests of a file.

    Raises:
        RuntimeError: one of them failed.
    """
    began = time.monotonic()
    done = subprocess.run([*PYTEST, file], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{file}: {done.stdout[-4000:]}")
    return [{"outcome": done.stdout.splitlines()[-1], "wall_s": round(time.monotonic() - began, 1)}]


STUDY = Study("slow-tests", "Do the slow tests pass?", files, run)
