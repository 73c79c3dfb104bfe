"""What a new user's commands cost in a fresh clone: installation apart, then the command itself."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

MAX_S = 3600.0
ENVIRONMENTS = {"make demo": ".venv/.demo", "make unit": ".venv/.dev"}
"""Commands as a user types them, and the target that makes the environment of each."""
CI = ".ci/run"
"""What CI calls: it installs all that it needs, and ends with `make test`."""
BEFORE = f"{CI} before the diet"
BEFORE_COMMIT = "2f08feb125bf"
"""The last commit before the tests were made to do less."""


def cases() -> Sequence[str]:
    """Return the commands, CI's at today's commit and at the one before its tests were made to do less."""
    return [*ENVIRONMENTS, CI, BEFORE]


def run(case: str) -> list[Row]:
    """Clone this commit, make the environment, run the command.

    Returns:
        One row: seconds of the wall and of all processors, and what the command printed last; those of making the
        environment apart, but for CI, which makes its own.

    Raises:
        RuntimeError: the command failed or took longer than MAX_S.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-clone-") as folder:
        clone = Path(folder) / "kakeya"
        Path(folder).chmod(0o755)  # tests run programs of other users, who read the checkout
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if case == BEFORE:
            subprocess.run(["git", "checkout", "--quiet", BEFORE_COMMIT], cwd=clone, check=True)
        if case not in ENVIRONMENTS:
            return [_spend(["bash", CI], clone)]
        installed = _spend(["make", ENVIRONMENTS[case]], clone)
        ran = _spend(case.split(), clone)
    return [{f"install_{key}": installed[key] for key in ("wall_s", "processor_s")} | ran]


def _spend(command: Sequence[str], folder: Path) -> Row:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=MAX_S, check=False
    )
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-2000:]}")
    spent_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {
        "wall_s": round(wall_s, 1),
        "processor_s": round(spent_s, 1),
        "outcome": (done.stdout.strip().splitlines() or [""])[-1],
    }


STUDY = Study("fresh-clone", "What do the README's commands cost in a fresh clone?", cases, run)
